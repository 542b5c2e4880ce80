//! Names as tokens, so that a whole name or its beginning is found as one word.

/// The names of a row, each as one token.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct IndexedNames {
    pub current: Vec<String>,
    pub former: Vec<String>,
    /// The beginnings of all names.
    pub prefixes: Vec<String>,
}

/// Names as tokens: one from the words that distinguish them, one from all letters without spaces.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct NameTokens {
    pub significant: Vec<String>,
    pub unspaced: Vec<String>,
}
