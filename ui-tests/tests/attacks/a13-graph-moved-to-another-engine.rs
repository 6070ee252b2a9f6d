//! row: d
//! error: E0616
//! says: field `graphs` of struct `engine::Owning` is private
//! Reaching the graphs of one engine, to put them into another one that does not own what they baked.

#![forbid(unsafe_code)]

use memtier::*;
use std::any::Any;
use ui_tests::*;

pub fn exchange<T: Any + Default>(graphs: &mut T) -> Box<dyn Any> {
    Box::new(std::mem::take(graphs))
}

pub fn steal<Ph: OwnsBuffers<Llama>>(phase: &mut Ph) -> Option<Box<dyn Any>> {
    #[cfg(crime)]
    return Some(exchange(phase.parts(unreachable!()).graphs));
    #[cfg(not(crime))]
    return None;
}

pub fn main() {}
