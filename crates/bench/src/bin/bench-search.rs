//! What a search costs, beside the same query on a bare Tantivy index and on Postgres' full text over the same rows:
//! `just bench-search`. All three in one run and in turns, so that what else the machine does meets all.
//!
//! Ours is the read model as requests call it: what is typed, parsed; the exact number of all, and the first page by
//! relevance and age. The other two are asked in their own words for the exact number and the first page by relevance.

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

/// The most that ours may take of the time of a bare Tantivy, and the least that Postgres must take of ours.
const MAX_RATIO_TO_TANTIVY: f64 = 1.5;
const MIN_POSTGRES_SPEEDUP: f64 = 20.0;

const PAGE_SIZE: usize = 20;
const TITLE_BOOST: f32 = 3.0;
/// In this share of all rows, and no more, or no less.
const MAX_RARE_SHARE: f64 = 0.0001;
const MIN_COMMON_SHARE: f64 = 0.01;
/// In a word of so many letters two errors are forgiven, in a shorter one a single one.
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
enum BenchQueryKind {
    Rare,
    Common,
    TwoWords,
    Prefix,
    Phrase,
    Typo,
}

const QUERY_KINDS: [(BenchQueryKind, &str, usize); 6] = [
    (BenchQueryKind::Rare, "rare", 40),
    (BenchQueryKind::Common, "common", 40),
    (BenchQueryKind::TwoWords, "two_words", 40),
    (BenchQueryKind::Prefix, "prefix", 40),
    (BenchQueryKind::Phrase, "phrase", 20),
    (BenchQueryKind::Typo, "typo", 20),
];

struct BenchQuery {
    kind: BenchQueryKind,
    words: Vec<String>,
}

/// A row as it is searched: what it is about, and what else is said of it.
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
    let (database, now) = (TestDatabase::create_empty().await?, Utc::now());
    let (store, today) = (database.open_store()?, sao_paulo_date(now));
    let size = DemoSize { filings: arguments.filings, companies: 2_600, until: today };
    demo::load_demo_data(&store, &size, now, &|_, _, _| ()).await?;
    let live = LiveSnapshot::default();
    live.refresh(&store).await?;
    let snapshot = live.get().context("the snapshot was not built")?;
    let filings = snapshot.filings().context("there are no filings")?;

    let bare = BareTantivy::build(filings)?;
    let mut connection = database.connect().await?;
    fill_postgres(&mut connection, filings).await?;
    let asked = draw_queries(filings, &bare)?;

    let mut times: Vec<QueryTimes> = asked.iter().map(|_| QueryTimes::default()).collect();
    // The first round warms up and is held to agree.
    for round in 0..=arguments.rounds {
        for (asked, times) in asked.iter().zip(&mut times) {
            let (ours, in_ours) = time_call(|| search_ours(filings, asked, today))?;
            let (tantivy, in_tantivy) = time_call(|| bare.search(asked))?;
            let (postgres, in_postgres) = search_postgres(&mut connection, asked).await?;
            if round == 0 {
                ensure_counts_agree(asked, ours, tantivy, postgres)?;
            } else {
                times.ours.push(in_ours);
                times.tantivy.push(in_tantivy);
                times.postgres.push(in_postgres);
            }
        }
    }
    print_and_check_report(arguments.filings, &asked, &times)
}

fn time_call<T>(ask: impl FnOnce() -> anyhow::Result<T>) -> anyhow::Result<(T, Duration)> {
    let began = Instant::now();
    Ok((ask()?, began.elapsed()))
}

/// All three look through the same rows: where they were asked the same they find as many.
fn ensure_counts_agree(asked: &BenchQuery, ours: usize, tantivy: usize, postgres: usize) -> anyhow::Result<()> {
    let said = asked.words.join(" ");
    let agrees = match asked.kind {
        // Whoever types one word may mean a longer one: ours finds those as well.
        BenchQueryKind::Rare | BenchQueryKind::Common | BenchQueryKind::TwoWords => {
            ours >= tantivy && tantivy == postgres && postgres > 0
        }
        BenchQueryKind::Prefix => ours > 0 && ours <= tantivy && tantivy == postgres,
        BenchQueryKind::Phrase => ours == tantivy && tantivy > 0,
        // Postgres knows no misspelled words.
        BenchQueryKind::Typo => ours > 0 && tantivy > 0 && postgres == 0,
    };
    ensure!(agrees, "{:?} {said:?}: ours found {ours}, Tantivy {tantivy}, Postgres {postgres}", asked.kind);
    Ok(())
}

fn print_and_check_report(filings: usize, asked: &[BenchQuery], times: &[QueryTimes]) -> anyhow::Result<()> {
    let median_of = |times: &[Duration]| percentile(times.iter().copied(), 50);
    let medians: Vec<[Duration; 3]> = times
        .iter()
        .map(|times| [median_of(&times.ours), median_of(&times.tantivy), median_of(&times.postgres)])
        .collect();
    let p50 = |is_of: &dyn Fn(&BenchQuery) -> bool| {
        let of_kind = |which: usize| {
            let all: Vec<Duration> =
                asked.iter().zip(&medians).filter(|(asked, _)| is_of(asked)).map(|(_, times)| times[which]).collect();
            median_of(&all).as_secs_f64() * 1e3
        };
        [of_kind(0), of_kind(1), of_kind(2)]
    };
    let line = |name: &str, [ours, tantivy, postgres]: [f64; 3]| {
        println!("{name}_p50_milliseconds: ours {ours:.3}, Tantivy {tantivy:.3}, Postgres {postgres:.3}");
    };
    println!("filings: {filings}");
    println!("queries: {}", asked.len());
    for (kind, name, _) in QUERY_KINDS {
        line(name, p50(&|asked: &BenchQuery| asked.kind == kind));
    }
    let all = p50(&|_: &BenchQuery| true);
    line("all", all);
    let (of_tantivy, of_postgres) = (all[0] / all[1], all[2] / all[0]);
    println!("faster_than_postgres: {of_postgres:.1}");
    println!("ratio_to_tantivy: {of_tantivy:.2}");
    ensure!(of_tantivy <= MAX_RATIO_TO_TANTIVY, "more than {MAX_RATIO_TO_TANTIVY} times what a bare Tantivy takes");
    ensure!(of_postgres >= MIN_POSTGRES_SPEEDUP, "not {MIN_POSTGRES_SPEEDUP} times faster than Postgres");
    Ok(())
}

fn search_ours(filings: &Filings, asked: &BenchQuery, today: NaiveDate) -> anyhow::Result<usize> {
    let typed = match asked.kind {
        BenchQueryKind::Phrase => format!("\"{}\"", asked.words.join(" ")),
        _ => asked.words.join(" "),
    };
    let found = filings.search(&typed, today, SearchOptions { offset: 0, limit: PAGE_SIZE, count_facets: false })?;
    Ok(found.page.total)
}

/// Tantivy as its own guide shows it: two fields, its parser of queries, its collectors.
struct BareTantivy {
    searcher: Searcher,
    parser: QueryParser,
    fields: [Field; 2],
}

impl BareTantivy {
    fn build(filings: &Filings) -> anyhow::Result<Self> {
        let mut schema = Schema::builder();
        let fields = [schema.add_text_field("title", TEXT), schema.add_text_field("text", TEXT)];
        // One segment is what it is fastest with.
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

    fn search(&self, asked: &BenchQuery) -> anyhow::Result<usize> {
        let query = match asked.kind {
            BenchQueryKind::Rare | BenchQueryKind::Common | BenchQueryKind::TwoWords => {
                self.parser.parse_query(&asked.words.join(" "))?
            }
            BenchQueryKind::Phrase => self.parser.parse_query(&format!("\"{}\"", asked.words.join(" ")))?,
            BenchQueryKind::Prefix => {
                self.query_either_field(&asked.words[0], |term| FuzzyTermQuery::new_prefix(term, 0, true))
            }
            BenchQueryKind::Typo => {
                let word = &asked.words[0];
                let forgiven = if word.len() < TWO_TYPO_MIN_LETTERS { 1 } else { 2 };
                self.query_either_field(word, |term| FuzzyTermQuery::new(term, forgiven, true))
            }
        };
        let (_, total) = self.searcher.search(&query, &(TopDocs::with_limit(PAGE_SIZE).order_by_score(), Count))?;
        Ok(total)
    }

    fn query_either_field(&self, word: &str, query: impl Fn(Term) -> FuzzyTermQuery) -> Box<dyn Query> {
        let of_field = |field| -> Box<dyn Query> { Box::new(query(Term::from_field_text(field, word))) };
        Box::new(BooleanQuery::union(self.fields.map(of_field).into()))
    }

    /// Every word with the number of rows that have it, in its title and in its text.
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

fn searched_row(filings: &Filings, at: u32) -> SearchedRow {
    let filing = filings.get(at).filing;
    let text = [filing.category, filing.doc_type, filing.kind, filing.company_name];
    SearchedRow { title: tokenize(filing.subject), text: text.iter().flat_map(|text| tokenize(text)).collect() }
}

fn searched_rows(filings: &Filings) -> impl Iterator<Item = SearchedRow> {
    (0..filings.len() as u32).map(|at| searched_row(filings, at))
}

/// The queries, by a fixed seed: words by how many rows have them, two words and phrases out of rows, beginnings of
/// words, and words with a letter too few.
fn draw_queries(filings: &Filings, bare: &BareTantivy) -> anyhow::Result<Vec<BenchQuery>> {
    let mut random = StdRng::seed_from_u64(SEED);
    let vocabulary = bare.count_rows_per_word()?;
    let known: HashSet<&str> = vocabulary.iter().map(|(word, _)| word.as_str()).collect();
    let all = filings.len() as f64;
    let of_frequency = |is_wanted: &dyn Fn(f64) -> bool| -> Vec<&str> {
        let wanted = vocabulary.iter().filter(|(_, rows)| is_wanted(*rows as f64 / all));
        wanted.map(|(word, _)| word.as_str()).collect()
    };
    let (rare, common) =
        (of_frequency(&|share| share <= MAX_RARE_SHARE), of_frequency(&|share| share >= MIN_COMMON_SHARE));
    let long: Vec<&str> = words_longer_than(&vocabulary, 5);
    let mut asked = Vec::new();
    for (kind, name, count) in QUERY_KINDS {
        let (mut drawn, mut seen) = (0, HashSet::new());
        for _ in 0..100 * count {
            let words: Option<Vec<String>> = match kind {
                BenchQueryKind::Rare => rare.choose(&mut random).map(|word| vec![(*word).to_owned()]),
                BenchQueryKind::Common => common.choose(&mut random).map(|word| vec![(*word).to_owned()]),
                BenchQueryKind::TwoWords => {
                    let SearchedRow { title, text } =
                        searched_row(filings, random.random_range(0..filings.len() as u32));
                    let words: Vec<String> = title.into_iter().chain(text).collect();
                    let two: Vec<String> = words.sample(&mut random, 2).cloned().collect();
                    Some(two).filter(|two| two.len() == 2 && two[0] != two[1])
                }
                BenchQueryKind::Prefix => long.choose(&mut random).map(|word| {
                    let letters = random.random_range(3..word.len());
                    vec![word[..letters].to_owned()]
                }),
                BenchQueryKind::Phrase => {
                    let title = searched_row(filings, random.random_range(0..filings.len() as u32)).title;
                    let length = random.random_range(2..=3);
                    let starts: Vec<usize> = (0..(title.len() + 1).saturating_sub(length)).collect();
                    starts.choose(&mut random).map(|start| title[*start..start + length].to_vec())
                }
                BenchQueryKind::Typo => long.choose(&mut random).map(|word| {
                    let mut word = (*word).to_owned();
                    word.remove(random.random_range(1..word.len()));
                    vec![word]
                }),
            };
            // A beginning that is a word is one, and a typing error that is a word is none.
            let words = words.filter(|words| match kind {
                BenchQueryKind::Prefix => !known.contains(words[0].as_str()),
                BenchQueryKind::Typo => vocabulary.iter().all(|(word, _)| !word.starts_with(&words[0])),
                _ => true,
            });
            if drawn < count
                && let Some(words) = words.filter(|words| seen.insert(words.clone()))
            {
                asked.push(BenchQuery { kind, words });
                drawn += 1;
            }
        }
        ensure!(drawn == count, "there are too few words: {drawn} queries of {count} of the kind {name}");
    }
    Ok(asked)
}

/// Words of letters alone, which is what people misspell and leave unfinished.
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
    for (at, row) in (0u32..).zip(searched_rows(filings)) {
        buffer.integer(at).text(&row.title.join(" ")).text(&row.text.join(" ")).end_row();
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

async fn search_postgres(connection: &mut PgConnection, asked: &BenchQuery) -> anyhow::Result<(usize, Duration)> {
    let query = match asked.kind {
        BenchQueryKind::Prefix => format!("{}:*", asked.words[0]),
        BenchQueryKind::Phrase => asked.words.join(" <-> "),
        _ => asked.words.join(" & "),
    };
    let began = Instant::now();
    let found: Vec<(i32, i64)> = sqlx::query_as(
        "select row, count(*) over () from searched, to_tsquery('simple', $1) query
         where words @@ query order by ts_rank(words, query) desc, row limit 20",
    )
    .bind(query)
    .fetch_all(connection)
    .await?;
    Ok((found.first().map_or(0, |(_, total)| *total as usize), began.elapsed()))
}
