//! For library authors: annotate structs of buffers.
//!
//! Write the struct that you would like to have, with the element type of each field, and say how long it lives:
//!
//! ```
//! use memtier::{Storage, bf16, tier};
//!
//! /// The numbers that shapes are made of.
//! #[derive(Clone, Copy)]
//! pub struct Dims {
//!     pub hidden: usize,
//!     pub layers: usize,
//!     pub max_batch: usize,
//! }
//!
//! /// One layer: loaded with the model, read-only while serving, gone with it.
//! #[tier(ModelResident, dims = Dims)]
//! pub struct Layer {
//!     /// Query projection.
//!     #[shape(hidden, hidden)]
//!     pub query: bf16,
//! }
//!
//! /// A model.
//! #[tier(ModelResident, dims = Dims)]
//! pub struct Weights {
//!     /// Its layers.
//!     pub layers: [Layer; layers],
//! }
//!
//! /// Written by every step; stays when the model is swapped.
//! #[tier(EnginePersistent, dims = Dims)]
//! pub struct Workspace {
//!     /// One row a sequence.
//!     #[shape(max_batch, 2 * hidden)]
//!     pub rows: f32,
//! }
//!
//! let dims = Dims { hidden: 64, layers: 2, max_batch: 4 };
//! assert_eq!(Weights::price(&dims)?.count(), 2 * 64 * 64 * 2);
//! assert_eq!(<Workspace as Storage>::fields(&dims)?[0].shape, [4, 128]);
//! # Ok::<(), memtier::SizeError>(())
//! ```
//!
//! Names in shapes are fields (or methods) of the dims. Sizes are checked: a product that overflows, a zero, rows that do not
//! hold whole blocks of a block type are a [`SizeError`](crate::SizeError) that names the field. A field whose format only
//! the model file knows is a [`Packed`](crate::Packed) field with a `#[format(..)]`.
//!
//! The struct gets a read view and a write view with the same field names. Nobody constructs them: a step, a load or a
//! capture hands them out. A kernel wrapper takes spans:
//!
//! ```
//! use memtier::{Host, Input, Is, LaunchError, Output, Place, Recorder, input, output};
//!
//! /// `onto += term`. The output is an input too, so the signature takes it once.
//! pub fn add_assign<P: Place<Space: Is<Host>>>(
//!     on: &Recorder<P>,
//!     onto: &mut impl Output<f32, P>,
//!     term: impl Input<f32, P>,
//! ) -> Result<(), LaunchError> {
//!     on.host_op((output::<f32, _, _>(&mut onto.span()), input::<f32, _, _>(term)), |(onto, term)| {
//!         if onto.len() != term.len() {
//!             return Err(LaunchError::Shape { what: "term", expected: onto.len(), found: term.len() });
//!         }
//!         onto.iter_mut().zip(term).for_each(|(onto, term)| *onto += term);
//!         Ok(())
//!     })
//! }
//! ```
//!
//! The bounds are what makes a misuse readable: a wrong element, a foreign capture, memory of another space each have a
//! sentence of their own.
