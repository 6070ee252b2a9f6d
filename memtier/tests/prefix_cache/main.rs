//! The prefix cache, forks and leases, one mechanism a test. Random histories of all of them together: `tests/requests`.

mod books;
mod faults;
mod fixture;
mod room;
mod runs;
mod threads;
mod writes;
