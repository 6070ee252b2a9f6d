//! The driver: the functions of `libcuda.so` that memtier calls, over the interpreter of PTX.
//!
//! A device address is an address of this process. Every access of a kernel and of a copy is compared with a table of what is allocated,
//! registered or mapped with access; one that goes elsewhere loses the context, as on a device. Streams run on threads of their own.
//! Launches, copies and graphs hold their arguments from when they were queued or captured.

mod books;
mod calls;
mod capture;
mod copies;
mod device;
mod error;
mod events;
mod faults;
mod graphs;
mod hold;
mod host;
mod launches;
mod modules;
mod pages;
mod settings;
mod space;
mod streams;
mod vmm;
mod work;

pub use capture::*;
pub use copies::*;
pub use device::*;
pub use events::*;
pub use graphs::*;
pub use hold::*;
pub use host::*;
pub use launches::*;
pub use modules::*;
pub use streams::*;
pub use vmm::*;
