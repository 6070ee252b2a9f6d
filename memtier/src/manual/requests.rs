//! Requests: tickets, leases, forks, and the prefix cache.
//!
#![doc = include_str!("requests.md")]
