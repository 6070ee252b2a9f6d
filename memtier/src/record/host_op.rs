//! CPU operations on host memory, written in safe code: spans go in, slices come out.

use std::{marker::PhantomData, ptr, slice};

use super::{LaunchError, Recorder};
use crate::{
    element::{Element, Packed, PackedFormat, PackedMeta, Plain, SameElement},
    place::{Fits, Place},
    space::{Host, Is},
    span::{Input, RawSpan, StableSpanMut},
};

/// An argument of a CPU operation: made by [`input`], [`output`] and [`packed`], or a pool's slab.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no argument of a CPU operation",
    label = "say how it is used",
    note = "a span is wrapped, so that its use is checked: `output::<f32, _, _>(&mut view.field)`, `input::<f32, _, _>(&view.field)`, \
            `packed(view.field)`, `table::<Kind, _, _>(view.table.ids())`; a pool's slab is `&slab` or `&mut slab`",
    note = "numbers are moved into the body: `move |(out,)| ..`"
)]
pub trait HostArg<P: Place>: crate::sealed::Sealed {
    /// What the operation keeps of it (in a graph: for ever).
    #[doc(hidden)]
    type Raw: Clone + Send + Sync + 'static;
    /// What the operation's body sees.
    type Slice<'x>;

    #[doc(hidden)]
    fn into_raw(self, on: &Recorder<P>) -> Self::Raw;
    #[doc(hidden)]
    fn stream(raw: &Self::Raw) -> u32;
    /// # Safety
    /// The memory is committed and alive for `'x`; an output is used by nobody else, an input not written meanwhile.
    #[doc(hidden)]
    unsafe fn slice<'x>(raw: &'x Self::Raw) -> Self::Slice<'x>;
}

/// A read argument. See [`input`].
pub struct In<T, I>(I, PhantomData<fn() -> T>);

/// A written argument. See [`output`].
pub struct Out<'x, 's, T: Element, P, U>(&'x mut StableSpanMut<'s, T, P>, PhantomData<fn() -> U>);

/// A read argument in a run-time format. See [`packed`].
pub struct InPacked<F, I>(I, PhantomData<fn() -> F>);

/// An input of a CPU operation: its body sees `&[T]`.
pub fn input<T: Plain, P: Place, I: Input<T, P>>(span: I) -> In<T, I> {
    In(span, PhantomData)
}

/// An output of a CPU operation: its body sees `&mut [U]`.
pub fn output<'x, 's, U: Plain, T: SameElement<U>, P>(span: &'x mut StableSpanMut<'s, T, P>) -> Out<'x, 's, T, P, U> {
    Out(span, PhantomData)
}

/// A tensor in a run-time format: the body sees a [`PackedTensor`].
pub fn packed<F: PackedFormat, P: Place, I: Input<Packed<F>, P>>(span: I) -> InPacked<F, I> {
    InPacked(span, PhantomData)
}

/// What the body of a CPU operation sees of a [`Packed`] tensor.
#[derive(Clone, Copy, Debug)]
pub struct PackedTensor<'x, F> {
    /// Format and shape.
    pub meta: PackedMeta<F>,
    /// The stored bytes.
    pub bytes: &'x [u8],
}

impl<T, I> crate::sealed::Sealed for In<T, I> {}
impl<T: Element, P, U> crate::sealed::Sealed for Out<'_, '_, T, P, U> {}
impl<F, I> crate::sealed::Sealed for InPacked<F, I> {}

impl<P: Place, T: Plain, I: Input<T, P>> HostArg<P> for In<T, I> {
    type Raw = RawSpan<T>;
    type Slice<'x> = &'x [T::Repr];

    fn into_raw(self, _on: &Recorder<P>) -> RawSpan<T> {
        self.0.input()
    }

    fn stream(raw: &RawSpan<T>) -> u32 {
        raw.stream
    }

    unsafe fn slice(raw: &RawSpan<T>) -> &[T::Repr] {
        // SAFETY: by the caller. Alignment: fields, blocks and scratch start on 256 bytes, elements follow in steps.
        unsafe { slice::from_raw_parts(ptr::with_exposed_provenance(raw.addr as usize), raw.len) }
    }
}

impl<P: Place, T: SameElement<U>, Q: Fits<P>, U: Plain> HostArg<P> for Out<'_, '_, T, Q, U> {
    type Raw = RawSpan<U>;
    type Slice<'x> = &'x mut [U::Repr];

    fn into_raw(self, on: &Recorder<P>) -> RawSpan<U> {
        self.0.output(on)
    }

    fn stream(raw: &RawSpan<U>) -> u32 {
        raw.stream
    }

    #[allow(clippy::mut_from_ref, reason = "the raw span is a name; the caller says that nobody else uses the memory")]
    unsafe fn slice(raw: &RawSpan<U>) -> &mut [U::Repr] {
        // SAFETY: by the caller; alignment as for inputs.
        unsafe { slice::from_raw_parts_mut(ptr::with_exposed_provenance_mut(raw.addr as usize), raw.len) }
    }
}

impl<P: Place, F: PackedFormat, I: Input<Packed<F>, P>> HostArg<P> for InPacked<F, I> {
    type Raw = RawSpan<Packed<F>>;
    type Slice<'x> = PackedTensor<'x, F>;

    fn into_raw(self, _on: &Recorder<P>) -> RawSpan<Packed<F>> {
        self.0.input()
    }

    fn stream(raw: &RawSpan<Packed<F>>) -> u32 {
        raw.stream
    }

    unsafe fn slice<'x>(raw: &'x RawSpan<Packed<F>>) -> PackedTensor<'x, F> {
        // SAFETY: by the caller.
        let bytes = unsafe { slice::from_raw_parts(ptr::with_exposed_provenance(raw.addr as usize), raw.len) };
        PackedTensor { meta: raw.meta, bytes }
    }
}

/// The arguments of a CPU operation: a tuple of [`HostArg`]s.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no list of arguments of a CPU operation",
    label = "not a tuple of 1 to 11 arguments",
    note = "one argument is a tuple, too, `(output::<f32, _, _>(&mut view.field),)`, and so is what the body takes, `|(out,)|`; what does \
            not fit into one operation is two"
)]
pub trait HostArgs<P: Place> {
    /// What the operation keeps.
    #[doc(hidden)]
    type Raw: Clone + Send + Sync + 'static;
    /// What its body sees.
    type Slices<'x>;

    #[doc(hidden)]
    fn into_raw(self, on: &Recorder<P>) -> Result<Self::Raw, LaunchError>;
    /// # Safety
    /// As for [`HostArg::slice`], for each.
    #[doc(hidden)]
    unsafe fn slices<'x>(raw: &'x Self::Raw) -> Self::Slices<'x>;
}

macro_rules! tuples { ($(($($arg:ident $index:tt),*))*) => { $(
    impl<P: Place, $($arg: HostArg<P>),*> HostArgs<P> for ($($arg,)*) {
        type Raw = ($($arg::Raw,)*);
        type Slices<'x> = ($($arg::Slice<'x>,)*);

        fn into_raw(self, on: &Recorder<P>) -> Result<Self::Raw, LaunchError> {
            let raw = ($(self.$index.into_raw(on),)*);
            on.check(&[$($arg::stream(&raw.$index)),*])?;
            Ok(raw)
        }

        unsafe fn slices<'x>(raw: &'x Self::Raw) -> Self::Slices<'x> {
            // SAFETY: by the caller, for each argument.
            ($(unsafe { $arg::slice(&raw.$index) },)*)
        }
    }
)* } }
tuples! {
    (A 0)
    (A 0, B 1)
    (A 0, B 1, C 2)
    (A 0, B 1, C 2, D 3)
    (A 0, B 1, C 2, D 3, E 4)
    (A 0, B 1, C 2, D 3, E 4, F 5)
    (A 0, B 1, C 2, D 3, E 4, F 5, G 6)
    (A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7)
    (A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7, I 8)
    (A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7, I 8, J 9)
    (A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7, I 8, J 9, K 10)
}

impl<P: Place> Recorder<P> {
    /// Runs `body` over host memory (or writes it down, in a capture, to run it at every replay).
    ///
    /// This is how a CPU kernel is wrapped: spans are checked here, the body is safe code over slices. It allocates nothing
    /// outside a capture.
    ///
    /// ```
    /// use memtier::{Fits, Host, Input, Is, LaunchError, Place, Recorder, SameElement, StableSpanMut, input, output};
    ///
    /// /// `out[i] = factor * x[i]`.
    /// pub fn scale<P: Place<Space: Is<Host>>>(
    ///     on: &Recorder<P>,
    ///     out: &mut StableSpanMut<'_, impl SameElement<f32>, impl Fits<P>>,
    ///     x: impl Input<f32, P>,
    ///     factor: f32,
    /// ) -> Result<(), LaunchError> {
    ///     on.host_op((output(out), input::<f32, _, _>(x)), move |(out, x)| {
    ///         out.iter_mut().zip(x).for_each(|(out, x)| *out = factor * x);
    ///         Ok(())
    ///     })
    /// }
    /// ```
    ///
    /// # Errors
    /// [`LaunchError::WrongStream`] for a span of another stream, and whatever `body` returns (in a capture: at the replay).
    #[inline]
    pub fn host_op<A: HostArgs<P>>(
        &self,
        args: A,
        body: impl for<'x> Fn(A::Slices<'x>) -> Result<(), LaunchError> + Send + Sync + 'static,
    ) -> Result<(), LaunchError>
    where
        P: Place<Space: Is<Host>>,
    {
        let raw = args.into_raw(self)?;
        // SAFETY: outputs came from `&mut` views and so overlap nothing else among the arguments; regions are committed and
        // disjoint. Eager: the caller still holds the views. In a graph: the bundle that owns the buffers is in the same
        // engine, the graph keeps their regions, and a replay borrows the engine mutably.
        let run = move || body(unsafe { A::slices(&raw) });
        self.run_or_write_down(run)
    }
}
