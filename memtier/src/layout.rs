//! Layouts: where each field of a storage lies. One checked function prices and carves, so the two cannot disagree.

use std::{fmt, marker::PhantomData, sync::Arc};

use crate::{
    backend::Region,
    element::{Element, Formatted, PackedFormat, Plain},
    owned::Owned,
    storage::Storage,
    tier::{SameTier, Tier},
    units::{Bytes, Overflow},
};

/// Every field starts on a multiple of this, unless it asks for more.
pub(crate) const FIELD_ALIGN: u64 = 256;
/// A storage takes whole pages of this size, and starts on one: what the largest alignment needs, and what backends commit.
pub(crate) const PAGE: u64 = 4096;
/// The most items an array of storages can have: more is a typo, and each costs bookkeeping on the host.
const MAX_ITEMS: usize = 65_536;

/// A storage, pool or table has no size.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SizeError {
    /// A product or sum left 64 bits.
    #[error("the size of `{field}` leaves the range of 64 bits: one of its dimensions is absurd")]
    Overflow {
        /// Which field.
        field: &'static str,
    },
    /// A dimension is zero.
    #[error("a dimension of `{field}` is zero: leave the field out with an optional part, or give it a size")]
    Zero {
        /// Which field.
        field: &'static str,
    },
    /// Rows do not hold whole blocks of a block type.
    #[error(
        "the rows of `{field}` hold {columns} elements, which is no multiple of the {per} that one {element} block holds"
    )]
    Ragged {
        /// Which field.
        field: &'static str,
        /// The last dimension.
        columns: usize,
        /// Elements in a block.
        per: usize,
        /// The block type.
        element: &'static str,
    },
    /// The run-time format of a packed field cannot hold its shape.
    #[error("`{field}`: the format {format} cannot hold a tensor of shape {shape}")]
    Format {
        /// Which field.
        field: &'static str,
        /// The format.
        format: String,
        /// The shape.
        shape: String,
    },
    /// Too many items in an array, or blocks in a pool.
    #[error("`{field}` has {count} items, at most {most} are possible")]
    TooMany {
        /// Which field.
        field: &'static str,
        /// How many were asked.
        count: u64,
        /// How many are possible.
        most: u64,
    },
    /// An alignment is no power of two, or larger than an arena can promise.
    #[error("`{field}` asks for an alignment of {align}: it must be a power of two and at most 4096")]
    Align {
        /// Which field.
        field: &'static str,
        /// What was asked.
        align: u64,
    },
}

impl From<SizeError> for Overflow {
    fn from(_: SizeError) -> Self {
        Overflow
    }
}

/// One field, for reports.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FieldInfo {
    /// Its name, with the names of the storages around it: `layers[3].query`.
    pub name: String,
    /// Its element, or its run-time format.
    pub element: String,
    /// Its dimensions.
    pub shape: Vec<usize>,
    /// Where it starts in its storage, in bytes.
    pub offset: Bytes,
    /// Its size, without the gap to the next field.
    pub bytes: Bytes,
}

/// A field's place in its storage.
#[doc(hidden)]
pub struct Slot<E: Element> {
    pub(crate) offset: u64,
    pub(crate) len: usize,
    pub(crate) meta: E::Meta,
}

/// A cursor over a storage that is being laid out.
#[doc(hidden)]
pub struct Walk<'w, T> {
    cursor: &'w mut Cursor,
    tier: PhantomData<fn() -> T>,
}

#[derive(Default)]
pub(crate) struct Cursor {
    used: Bytes,
    /// Field descriptions, when somebody wants to read them.
    fields: Option<(String, Vec<FieldInfo>)>,
}

impl<'w, T> Walk<'w, T> {
    pub(crate) fn new(cursor: &'w mut Cursor) -> Self {
        Walk { cursor, tier: PhantomData }
    }

    /// The next field: the product of `shape` elements.
    pub fn field<E: Plain>(&mut self, field: &'static str, shape: &[usize], align: u64) -> Result<Slot<E>, SizeError> {
        let elements = product(field, shape)?;
        let columns = shape.last().copied().unwrap_or(1);
        if !columns.is_multiple_of(E::PER) {
            return Err(SizeError::Ragged { field, columns, per: E::PER, element: E::NAME });
        }
        let len = elements / E::PER;
        let bytes = len.checked_mul(size_of::<E::Repr>()).ok_or(SizeError::Overflow { field })?;
        let offset = self.advance(field, Bytes::new(bytes as u64), align, shape, || E::NAME.to_owned())?;
        Ok(Slot { offset, len, meta: () })
    }

    /// The next field, in a format that is known now.
    pub fn packed<E: Formatted>(
        &mut self,
        field: &'static str,
        format: E::Format,
        shape: &[usize],
        align: u64,
    ) -> Result<Slot<E>, SizeError> {
        product(field, shape)?;
        let (columns, rows) = shape.split_last().map_or((1, 1), |(last, rest)| (*last, rest.iter().product()));
        let bytes = format.bytes(shape).ok_or_else(|| SizeError::Format {
            field,
            format: format!("{format:?}"),
            shape: format!("{shape:?}"),
        })?;
        let units = usize::try_from(bytes.count()).ok();
        let len =
            units.and_then(|bytes| bytes.checked_div(size_of::<E::Repr>())).ok_or(SizeError::Overflow { field })?;
        let offset = self.advance(field, bytes, align, shape, || format!("{format:?}"))?;
        Ok(Slot { offset, len, meta: E::meta(format, rows, columns) })
    }

    fn advance(
        &mut self,
        field: &'static str,
        bytes: Bytes,
        align: u64,
        shape: &[usize],
        element: impl FnOnce() -> String,
    ) -> Result<u64, SizeError> {
        if !align.is_power_of_two() || align > PAGE {
            return Err(SizeError::Align { field, align });
        }
        let overflow = |_| SizeError::Overflow { field };
        let offset = self.cursor.used.aligned(align.max(FIELD_ALIGN)).map_err(overflow)?;
        self.cursor.used = offset.plus(bytes).and_then(|end| end.aligned(FIELD_ALIGN)).map_err(overflow)?;
        if let Some((prefix, fields)) = &mut self.cursor.fields {
            let name = format!("{prefix}{field}");
            fields.push(FieldInfo { name, element: element(), shape: shape.to_vec(), offset, bytes });
        }
        Ok(offset.count())
    }

    /// A nested storage of the same tier.
    pub fn nested<N: Storage>(
        &mut self,
        field: &'static str,
        dims: impl DimsOf<N::Dims>,
    ) -> Result<N::Layout, SizeError>
    where
        N::Tier: SameTier<T>,
    {
        self.inside(format_args!("{field}."), |walk| N::lay_out(dims.dims(), walk))
    }

    /// `[N; count]`, where `count` and the dimensions of each item are known at run time.
    pub fn array<N: Storage, D: DimsOf<N::Dims>>(
        &mut self,
        field: &'static str,
        count: usize,
        mut dims: impl FnMut(usize) -> D,
    ) -> Result<Vec<N::Layout>, SizeError>
    where
        N::Tier: SameTier<T>,
    {
        if count > MAX_ITEMS {
            return Err(SizeError::TooMany { field, count: count as u64, most: MAX_ITEMS as u64 });
        }
        (0..count)
            .map(|index| self.inside(format_args!("{field}[{index}]."), |walk| N::lay_out(dims(index).dims(), walk)))
            .collect()
    }

    fn inside<N: Tier, R>(&mut self, name: fmt::Arguments<'_>, body: impl FnOnce(&mut Walk<'_, N>) -> R) -> R {
        let outer = self.cursor.fields.as_mut().map(|(prefix, _)| {
            let outer = prefix.len();
            prefix.push_str(&name.to_string());
            outer
        });
        let result = body(&mut Walk { cursor: self.cursor, tier: PhantomData });
        if let (Some(outer), Some((prefix, _))) = (outer, &mut self.cursor.fields) {
            prefix.truncate(outer);
        }
        result
    }
}

/// What `#[dims(..)]` can be: the dims of the nested storage, or a reference to them.
#[doc(hidden)]
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not `{D}`, the dims of this storage",
    label = "the nested storage has other dims",
    note = "`#[dims(expression)]` gives the dims of a nested storage, or a reference to them: a field or a method of the outer dims; in \
            an array `index` is the number of the item"
)]
pub trait DimsOf<D> {
    /// It.
    fn dims(&self) -> &D;
}
impl<D> DimsOf<D> for D {
    fn dims(&self) -> &D {
        self
    }
}
impl<D> DimsOf<D> for &D {
    fn dims(&self) -> &D {
        self
    }
}
impl<D> DimsOf<D> for &&D {
    fn dims(&self) -> &D {
        self
    }
}

/// The number of elements of a shape.
fn product(field: &'static str, shape: &[usize]) -> Result<usize, SizeError> {
    if shape.contains(&0) {
        return Err(SizeError::Zero { field });
    }
    shape.iter().try_fold(1usize, |product, dim| product.checked_mul(*dim)).ok_or(SizeError::Overflow { field })
}

/// The layout and the size of a storage with these dimensions.
pub(crate) fn lay_out<T: Storage>(dims: &T::Dims) -> Result<(T::Layout, Bytes), SizeError> {
    let mut cursor = Cursor::default();
    let layout = T::lay_out(dims, &mut Walk::new(&mut cursor))?;
    let bytes = cursor.used.aligned(PAGE).map_err(|_| SizeError::Overflow { field: T::NAME })?;
    Ok((layout, bytes))
}

/// Every field of a storage with these dimensions, in the order of memory.
pub(crate) fn fields<T: Storage>(dims: &T::Dims) -> Result<Vec<FieldInfo>, SizeError> {
    let mut cursor = Cursor { used: Bytes::ZERO, fields: Some(Default::default()) };
    T::lay_out(dims, &mut Walk::new(&mut cursor))?;
    Ok(cursor.fields.map(|(_, fields)| fields).unwrap_or_default())
}

/// The memory that a laid out storage is built on. Only a carve makes one.
#[doc(hidden)]
pub struct Base<'b, T> {
    region: &'b Arc<Region>,
    addr: u64,
    tier: PhantomData<fn() -> T>,
}

impl<'b, T> Base<'b, T> {
    pub(crate) fn new(region: &'b Arc<Region>, addr: u64) -> Self {
        Base { region, addr, tier: PhantomData }
    }

    /// The field at `slot`.
    pub fn owned<E: Element>(&self, slot: &Slot<E>) -> Owned<E, T> {
        Owned::new(self.region.clone(), self.addr + slot.offset, slot.len, slot.meta)
    }

    /// The same memory, for a nested storage. `Walk` has made sure that it is of the same tier.
    pub fn nested<N: Storage>(&self, layout: &N::Layout) -> N {
        N::build(layout, &Base::new(self.region, self.addr))
    }
}
