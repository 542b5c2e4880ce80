//! The body of a response that is the same for every caller.

use axum::body::{Body, Bytes};

pub enum ResponseBody {
    Whole(Bytes),
    /// Too long to be cached: rows are written while they are sent.
    Stream(Body),
}
