//! Compares the cost of a search with the same query on a bare Tantivy index and on PostgreSQL's full-text search over
//! the same rows: `just bench-search`. All three run alternately in one process, so that other load on the machine
//! affects all of them.
//!
//! Ours is the read model as requests use it: it parses the typed query and returns the exact total and the first page by
//! relevance and age. The other two get native queries for the exact total and the first page by relevance.

use std::collections::{BTreeMap, HashSet};
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use chrono::{NaiveDate, Utc};
use clap::Parser;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{RngExt, SeedableRng};
use sqlx::PgConnection;
use tantivy::collector::{Count, TopDocs};
use tantivy::directory::RamDirectory;
use tantivy::query::{BooleanQuery, FuzzyTermQuery, Query, QueryParser};
use tantivy::schema::{Field, Schema, TEXT};
use tantivy::{Index, Searcher, TantivyDocument, Term};
use vintem_domain::dates::sao_paulo_date;
use vintem_ingest::demo::{self, DemoSize};
use vintem_snapshot::{Filings, LiveSnapshot, SearchOptions, tokenize};
use vintem_store::copy_buffer::CopyBuffer;
use vintem_testkit::TestDatabase;
use vintem_testkit::timed_requests::percentile;

/// Maximum ratio of our time to a bare Tantivy's, and minimum ratio of PostgreSQL's time to ours.
const MAX_RATIO_TO_TANTIVY: f64 = 1.5;
const MIN_POSTGRES_SPEEDUP: f64 = 20.0;

const PAGE_SIZE: usize = 20;
const TITLE_BOOST: f32 = 3.0;
/// A rare word is in at most, a common word in at least, this share of all rows.
const MAX_RARE_SHARE: f64 = 0.0001;
const MIN_COMMON_SHARE: f64 = 0.01;
/// Words of at least this many letters may have two typos, shorter ones only one.
const TWO_TYPO_MIN_LETTERS: usize = 8;
const SEED: u64 = 20_240_101;
const COPY_CHUNK_BYTES: usize = 1 << 20;
const WRITER_MEMORY_BYTES: usize = 256 << 20;

#[derive(Debug, Parser)]
struct Arguments {
    /// How many synthetic filings
    #[arg(long, default_value_t = 1_500_000)]
    filings: usize,

    /// How often each query is asked; its time is the median
    #[arg(long, default_value_t = 5)]
    rounds: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SearchQueryKind {
    Rare,
    Common,
    TwoWords,
    Prefix,
    Phrase,
    Typo,
}

const QUERY_KINDS: [(SearchQueryKind, &str, usize); 6] = [
    (SearchQueryKind::Rare, "rare", 40),
    (SearchQueryKind::Common, "common", 40),
    (SearchQueryKind::TwoWords, "two_words", 40),
    (SearchQueryKind::Prefix, "prefix", 40),
    (SearchQueryKind::Phrase, "phrase", 20),
    (SearchQueryKind::Typo, "typo", 20),
];

struct BenchQuery {
    kind: SearchQueryKind,
    words: Vec<String>,
}

/// The searched words of a row: its subject, and its other texts.
struct SearchedRow {
    title: Vec<String>,
    text: Vec<String>,
}

#[derive(Default)]
struct QueryTimes {
    ours: Vec<Duration>,
    tantivy: Vec<Duration>,
    postgres: Vec<Duration>,
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let arguments = Arguments::parse();
    let database = TestDatabase::create_empty().await?;
    let now = Utc::now();
    let store = database.open_store()?;
    let today = sao_paulo_date(now);
    let size = DemoSize { filings: arguments.filings, companies: 2_600, until: today };
    demo::load_demo_data(&store, &size, now, &|_, _, _| ()).await?;
    let live = LiveSnapshot::default();
    live.refresh(&store).await?;
    let snapshot = live.get().context("the snapshot was not built")?;
    let filings = snapshot.filings().context("there are no filings")?;

    let bare = BareTantivy::build(filings)?;
    let mut connection = database.connect().await?;
    fill_postgres(&mut connection, filings).await?;
    let queries = draw_queries(filings, &bare)?;

    let mut times: Vec<QueryTimes> = queries.iter().map(|_| QueryTimes::default()).collect();
    // The first round is a warm-up and checks that the counts agree.
    for round in 0..=arguments.rounds {
        for (query, times) in queries.iter().zip(&mut times) {
            let (our_count, our_time) = time_call(|| search_ours(filings, query, today))?;
            let (tantivy_count, tantivy_time) = time_call(|| bare.search(query))?;
            let (postgres_count, postgres_time) = search_postgres(&mut connection, query).await?;
            if round == 0 {
                ensure_counts_agree(query, our_count, tantivy_count, postgres_count)?;
            } else {
                times.ours.push(our_time);
                times.tantivy.push(tantivy_time);
                times.postgres.push(postgres_time);
            }
        }
    }
    print_and_check_report(arguments.filings, &queries, &times)
}

fn time_call<T>(call: impl FnOnce() -> anyhow::Result<T>) -> anyhow::Result<(T, Duration)> {
    let started = Instant::now();
    Ok((call()?, started.elapsed()))
}

/// All three search the same rows, so they must find the same number where their queries mean the same.
fn ensure_counts_agree(query: &BenchQuery, ours: usize, tantivy: usize, postgres: usize) -> anyhow::Result<()> {
    let words = query.words.join(" ");
    let agrees = match query.kind {
        // Ours also finds longer words that begin with the typed one.
        SearchQueryKind::Rare | SearchQueryKind::Common | SearchQueryKind::TwoWords => {
            ours >= tantivy && tantivy == postgres && postgres > 0
        }
        SearchQueryKind::Prefix => ours > 0 && ours <= tantivy && tantivy == postgres,
        SearchQueryKind::Phrase => ours == tantivy && tantivy > 0,
        // PostgreSQL has no typo tolerance.
        SearchQueryKind::Typo => ours > 0 && tantivy > 0 && postgres == 0,
    };
    ensure!(agrees, "{:?} {words:?}: ours found {ours}, Tantivy {tantivy}, Postgres {postgres}", query.kind);
    Ok(())
}

fn print_and_check_report(filings: usize, queries: &[BenchQuery], times: &[QueryTimes]) -> anyhow::Result<()> {
    let median_of = |times: &[Duration]| percentile(times.iter().copied(), 50);
    let medians: Vec<[Duration; 3]> = times
        .iter()
        .map(|times| [median_of(&times.ours), median_of(&times.tantivy), median_of(&times.postgres)])
        .collect();
    let p50_millis = |is_selected: &dyn Fn(&BenchQuery) -> bool| {
        let of_engine = |engine: usize| {
            let selected = queries.iter().zip(&medians).filter(|(query, _)| is_selected(query));
            let times: Vec<Duration> = selected.map(|(_, times)| times[engine]).collect();
            median_of(&times).as_secs_f64() * 1e3
        };
        [of_engine(0), of_engine(1), of_engine(2)]
    };

    let print_line = |name: &str, [ours, tantivy, postgres]: [f64; 3]| {
        println!("{name}_p50_milliseconds: ours {ours:.3}, Tantivy {tantivy:.3}, Postgres {postgres:.3}");
    };
    println!("filings: {filings}");
    println!("queries: {}", queries.len());
    for (kind, name, _) in QUERY_KINDS {
        print_line(name, p50_millis(&|query: &BenchQuery| query.kind == kind));
    }
    let [ours, tantivy, postgres] = p50_millis(&|_: &BenchQuery| true);
    print_line("all", [ours, tantivy, postgres]);

    let ratio_to_tantivy = ours / tantivy;
    let postgres_speedup = postgres / ours;
    println!("faster_than_postgres: {postgres_speedup:.1}");
    println!("ratio_to_tantivy: {ratio_to_tantivy:.2}");
    ensure!(
        ratio_to_tantivy <= MAX_RATIO_TO_TANTIVY,
        "more than {MAX_RATIO_TO_TANTIVY} times what a bare Tantivy takes"
    );
    ensure!(postgres_speedup >= MIN_POSTGRES_SPEEDUP, "not {MIN_POSTGRES_SPEEDUP} times faster than Postgres");
    Ok(())
}

fn search_ours(filings: &Filings, query: &BenchQuery, today: NaiveDate) -> anyhow::Result<usize> {
    let text = match query.kind {
        SearchQueryKind::Phrase => format!("\"{}\"", query.words.join(" ")),
        _ => query.words.join(" "),
    };
    let results = filings.search(&text, today, SearchOptions { offset: 0, limit: PAGE_SIZE, count_facets: false })?;
    Ok(results.page.total)
}

/// Tantivy as in its own guide: two fields, its query parser, its collectors.
struct BareTantivy {
    searcher: Searcher,
    parser: QueryParser,
    fields: [Field; 2],
}

impl BareTantivy {
    fn build(filings: &Filings) -> anyhow::Result<Self> {
        let mut schema = Schema::builder();
        let fields = [schema.add_text_field("title", TEXT), schema.add_text_field("text", TEXT)];
        // Tantivy is fastest with a single segment.
        let mut writer = Index::builder()
            .schema(schema.build())
            .single_segment_index_writer::<TantivyDocument>(RamDirectory::create(), WRITER_MEMORY_BYTES)?;
        for row in searched_rows(filings) {
            let mut document = TantivyDocument::default();
            document.add_text(fields[0], row.title.join(" "));
            document.add_text(fields[1], row.text.join(" "));
            writer.add_document(document)?;
        }

        let index = writer.finalize()?;
        let mut parser = QueryParser::for_index(&index, fields.to_vec());
        parser.set_conjunction_by_default();
        parser.set_field_boost(fields[0], TITLE_BOOST);
        Ok(Self { searcher: index.reader()?.searcher(), parser, fields })
    }

    fn search(&self, query: &BenchQuery) -> anyhow::Result<usize> {
        let tantivy_query = match query.kind {
            SearchQueryKind::Rare | SearchQueryKind::Common | SearchQueryKind::TwoWords => {
                self.parser.parse_query(&query.words.join(" "))?
            }
            SearchQueryKind::Phrase => self.parser.parse_query(&format!("\"{}\"", query.words.join(" ")))?,
            SearchQueryKind::Prefix => {
                self.query_either_field(&query.words[0], |term| FuzzyTermQuery::new_prefix(term, 0, true))
            }
            SearchQueryKind::Typo => {
                let word = &query.words[0];
                let max_typos = if word.len() < TWO_TYPO_MIN_LETTERS { 1 } else { 2 };
                self.query_either_field(word, |term| FuzzyTermQuery::new(term, max_typos, true))
            }
        };
        let (_, total) =
            self.searcher.search(&tantivy_query, &(TopDocs::with_limit(PAGE_SIZE).order_by_score(), Count))?;
        Ok(total)
    }

    fn query_either_field(&self, word: &str, query: impl Fn(Term) -> FuzzyTermQuery) -> Box<dyn Query> {
        let field_query = |field| -> Box<dyn Query> { Box::new(query(Term::from_field_text(field, word))) };
        Box::new(BooleanQuery::union(self.fields.map(field_query).into()))
    }

    /// Every word with the number of rows that have it, counted separately for title and text.
    fn count_rows_per_word(&self) -> anyhow::Result<Vec<(String, u64)>> {
        let mut vocabulary: BTreeMap<String, u64> = Default::default();
        for segment in self.searcher.segment_readers() {
            for field in self.fields {
                let index = segment.inverted_index(field)?;
                let mut words = index.terms().stream()?;
                while words.advance() {
                    let word = std::str::from_utf8(words.key())?.to_owned();
                    *vocabulary.entry(word).or_default() += u64::from(words.value().doc_freq);
                }
            }
        }
        Ok(vocabulary.into_iter().collect())
    }
}

fn searched_row(filings: &Filings, index: u32) -> SearchedRow {
    let filing = filings.get(index).filing;
    let text = [filing.category, filing.doc_type, filing.kind, filing.company_name];
    SearchedRow { title: tokenize(filing.subject), text: text.iter().flat_map(|text| tokenize(text)).collect() }
}

fn searched_rows(filings: &Filings) -> impl Iterator<Item = SearchedRow> {
    (0..filings.len() as u32).map(|index| searched_row(filings, index))
}

/// Draws the queries with a fixed seed: rare and common words, pairs of words and phrases from rows, prefixes of words,
/// and words with one letter missing.
fn draw_queries(filings: &Filings, bare: &BareTantivy) -> anyhow::Result<Vec<BenchQuery>> {
    let mut random = StdRng::seed_from_u64(SEED);
    let vocabulary = bare.count_rows_per_word()?;
    let all_words: HashSet<&str> = vocabulary.iter().map(|(word, _)| word.as_str()).collect();
    let row_count = filings.len() as f64;
    let words_by_share = |is_wanted: &dyn Fn(f64) -> bool| -> Vec<&str> {
        let wanted = vocabulary.iter().filter(|(_, rows)| is_wanted(*rows as f64 / row_count));
        wanted.map(|(word, _)| word.as_str()).collect()
    };
    let rare = words_by_share(&|share| share <= MAX_RARE_SHARE);
    let common = words_by_share(&|share| share >= MIN_COMMON_SHARE);
    let long: Vec<&str> = words_longer_than(&vocabulary, 5);

    let mut queries = Vec::new();
    for (kind, name, count) in QUERY_KINDS {
        let mut drawn = 0;
        let mut seen = HashSet::new();
        for _ in 0..100 * count {
            let words: Option<Vec<String>> = match kind {
                SearchQueryKind::Rare => rare.choose(&mut random).map(|word| vec![(*word).to_owned()]),
                SearchQueryKind::Common => common.choose(&mut random).map(|word| vec![(*word).to_owned()]),
                SearchQueryKind::TwoWords => {
                    let SearchedRow { title, text } =
                        searched_row(filings, random.random_range(0..filings.len() as u32));
                    let words: Vec<String> = title.into_iter().chain(text).collect();
                    let two: Vec<String> = words.sample(&mut random, 2).cloned().collect();
                    Some(two).filter(|two| two.len() == 2 && two[0] != two[1])
                }
                SearchQueryKind::Prefix => long.choose(&mut random).map(|word| {
                    let letters = random.random_range(3..word.len());
                    vec![word[..letters].to_owned()]
                }),
                SearchQueryKind::Phrase => {
                    let title = searched_row(filings, random.random_range(0..filings.len() as u32)).title;
                    let length = random.random_range(2..=3);
                    let starts: Vec<usize> = (0..(title.len() + 1).saturating_sub(length)).collect();
                    starts.choose(&mut random).map(|start| title[*start..start + length].to_vec())
                }
                SearchQueryKind::Typo => long.choose(&mut random).map(|word| {
                    let mut word = (*word).to_owned();
                    word.remove(random.random_range(1..word.len()));
                    vec![word]
                }),
            };

            // A prefix must not be a word itself, and a typo must not be the beginning of a word.
            let words = words.filter(|words| match kind {
                SearchQueryKind::Prefix => !all_words.contains(words[0].as_str()),
                SearchQueryKind::Typo => vocabulary.iter().all(|(word, _)| !word.starts_with(&words[0])),
                _ => true,
            });
            if drawn < count
                && let Some(words) = words.filter(|words| seen.insert(words.clone()))
            {
                queries.push(BenchQuery { kind, words });
                drawn += 1;
            }
        }
        ensure!(drawn == count, "there are too few words: {drawn} queries of {count} of the kind {name}");
    }
    Ok(queries)
}

/// Only words of letters, because those are what people misspell and leave unfinished.
fn words_longer_than(vocabulary: &[(String, u64)], letters: usize) -> Vec<&str> {
    let is_long = |word: &&str| word.len() > letters && word.bytes().all(|byte| byte.is_ascii_lowercase());
    vocabulary.iter().map(|(word, _)| word.as_str()).filter(is_long).collect()
}

async fn fill_postgres(connection: &mut PgConnection, filings: &Filings) -> anyhow::Result<()> {
    sqlx::raw_sql("create unlogged table said (row integer primary key, title text not null, text text not null)")
        .execute(&mut *connection)
        .await?;

    let mut sink = connection.copy_in_raw("copy said from stdin").await?;
    let mut buffer = CopyBuffer::default();
    for (index, row) in (0u32..).zip(searched_rows(filings)) {
        buffer.integer(index).text(&row.title.join(" ")).text(&row.text.join(" ")).end_row();
        if buffer.len() >= COPY_CHUNK_BYTES {
            sink.send(buffer.take_bytes()).await?;
        }
    }
    sink.send(buffer.take_bytes()).await?;
    sink.finish().await?;

    let statements = [
        "create unlogged table searched as
         select row, setweight(to_tsvector('simple', title), 'A') || to_tsvector('simple', text) as words from said",
        "create index on searched using gin (words)",
        "vacuum analyze searched",
    ];
    for statement in statements {
        sqlx::query(statement).execute(&mut *connection).await?;
    }
    Ok(())
}

async fn search_postgres(connection: &mut PgConnection, query: &BenchQuery) -> anyhow::Result<(usize, Duration)> {
    let tsquery = match query.kind {
        SearchQueryKind::Prefix => format!("{}:*", query.words[0]),
        SearchQueryKind::Phrase => query.words.join(" <-> "),
        _ => query.words.join(" & "),
    };

    let started = Instant::now();
    let rows: Vec<(i32, i64)> = sqlx::query_as(
        "select row, count(*) over () from searched, to_tsquery('simple', $1) query
         where words @@ query order by ts_rank(words, query) desc, row limit 20",
    )
    .bind(tsquery)
    .fetch_all(connection)
    .await?;
    Ok((rows.first().map_or(0, |(_, total)| *total as usize), started.elapsed()))
}
