//! The fields of the index.

use tantivy::schema::{Field, IndexRecordOption, Schema, TextFieldIndexing, TextOptions};

/// The tokenizer of all fields, which every writer must register.
pub const WORD_TOKENIZER_NAME: &str = "words";

#[derive(Clone, Copy)]
pub struct IndexFields {
    pub title: Field,
    pub text: Field,
    pub current_name: Field,
    pub former_name: Field,
    pub name_prefix: Field,
}

/// Every index has the same schema, so field numbers are the same too.
pub fn build_schema() -> (Schema, IndexFields) {
    // Texts are already words, so white space separates them.
    let options = |option| {
        // The length of a text and the number of occurrences of a word do not affect the score.
        let indexing = TextFieldIndexing::default()
            .set_tokenizer(WORD_TOKENIZER_NAME)
            .set_index_option(option)
            .set_fieldnorms(false);
        TextOptions::default().set_indexing_options(indexing)
    };
    let words = options(IndexRecordOption::WithFreqsAndPositions);
    let whole_names = options(IndexRecordOption::Basic);

    let mut schema = Schema::builder();
    let fields = IndexFields {
        title: schema.add_text_field("title", words.clone()),
        text: schema.add_text_field("text", words),
        current_name: schema.add_text_field("whole", whole_names.clone()),
        former_name: schema.add_text_field("former", whole_names.clone()),
        name_prefix: schema.add_text_field("beginning", whole_names),
    };
    (schema.build(), fields)
}
