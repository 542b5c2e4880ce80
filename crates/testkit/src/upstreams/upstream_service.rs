//! The upstreams that the fakes stand for, and which one a path belongs to.

use super::{cvm, ptax, sgs};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum UpstreamService {
    Sgs,
    Ptax,
    Cvm,
}

/// Expects a decoded path.
pub fn upstream_for_path(path: &str) -> Option<UpstreamService> {
    let prefixes = [
        (sgs::PATH_PREFIX, UpstreamService::Sgs),
        (ptax::PATH_PREFIX, UpstreamService::Ptax),
        (cvm::PATH_PREFIX, UpstreamService::Cvm),
    ];
    prefixes.iter().find(|(prefix, _)| path.starts_with(prefix)).map(|(_, upstream)| *upstream)
}
