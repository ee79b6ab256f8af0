//! Campaigns without coverage: inputs made from a seed, changed, and taken from a corpus; the first that fails is shrunk.
//!
//! One thread. Every input follows from the seed and the corpus alone.

use std::collections::BTreeMap;
use std::panic::{self, AssertUnwindSafe};

use super::{INPUT_BYTES_MAX, Tally, Target};
use crate::rng::Stream;

/// Inputs kept to be changed and mixed.
const KEPT_MAX: usize = 4096;
/// Attempts at making a failing input shorter.
const SHRINK_ATTEMPTS: usize = 20_000;

#[derive(Clone, Copy, Debug, Default)]
pub struct Summary {
    pub inputs: u64,
    pub bytes: u64,
    pub tally: Tally,
    /// The most memory that an input held, and the length of that input.
    pub peak: (usize, usize),
}

#[derive(Clone, Debug)]
pub struct Failure {
    pub input: Vec<u8>,
    pub reason: String,
    /// How many inputs it took.
    pub inputs: u64,
}

/// Inputs found by others, see [`parse_corpus`].
pub type Corpus = BTreeMap<String, Vec<Vec<u8>>>;

/// Reads a corpus: a line each, `target hex`.
///
/// # Errors
/// The line that is none.
pub fn parse_corpus(text: &str) -> Result<Corpus, String> {
    let mut corpus = Corpus::new();
    for line in text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        let (target, hex) = line.split_once(' ').ok_or_else(|| format!("no input: {line}"))?;
        corpus.entry(target.to_owned()).or_default().push(from_hex(hex).ok_or_else(|| format!("not hex: {line}"))?);
    }
    Ok(corpus)
}

/// The bytes that hexadecimal digits stand for.
pub fn from_hex(text: &str) -> Option<Vec<u8>> {
    let text = text.as_bytes();
    let pairs = text.chunks_exact(2).map(|pair| u8::from_str_radix(str::from_utf8(pair).ok()?, 16).ok());
    if text.len().is_multiple_of(2) { pairs.collect() } else { None }
}

pub fn to_hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Runs the corpus, then inputs made from the seed until there were `inputs`.
///
/// # Errors
/// The first input that fails, shrunk.
///
/// # Panics
/// When panics abort and an input panics: the hook has been called then, see [`current`].
pub fn campaign(target: &Target, corpus: &[Vec<u8>], inputs: u64, seed: u64) -> Result<Summary, Failure> {
    let mut stream = Stream::new(seed, target.name);
    let mut kept: Vec<Vec<u8>> = corpus.to_vec();
    let mut summary = Summary::default();
    // Values that are made once for all inputs are not any input's.
    let _ = attempt(target, &[]);
    let mut known = corpus.iter().cloned();
    for _ in 0..inputs {
        let input = known.next().unwrap_or_else(|| next(target, &mut stream, &mut kept));
        summary.inputs += 1;
        summary.bytes += input.len() as u64;
        match attempt(target, &input) {
            Ok((tally, peak)) => {
                summary.tally.add(&tally);
                summary.peak = summary.peak.max((peak, input.len()));
            }
            Err(reason) => {
                let input = shrink(target, input);
                let reason = attempt(target, &input).err().unwrap_or(reason);
                return Err(Failure { input, reason, inputs: summary.inputs });
            }
        }
    }
    Ok(summary)
}

/// Runs one input; a panic is caught where panics unwind.
fn attempt(target: &Target, input: &[u8]) -> Result<(Tally, usize), String> {
    CURRENT.with_borrow_mut(|current| {
        current.clear();
        current.extend_from_slice(input);
    });
    match panic::catch_unwind(AssertUnwindSafe(|| target.run(input))) {
        Ok(done) => done.map_err(|violation| violation.to_string()),
        Err(_) => Err("a panic".to_owned()),
    }
}

thread_local! {
    static CURRENT: std::cell::RefCell<Vec<u8>> = const { std::cell::RefCell::new(Vec::new()) };
}

/// The input that is running, for a panic hook.
pub fn current() -> Vec<u8> {
    CURRENT.with(|current| current.try_borrow().map(|bytes| bytes.clone()).unwrap_or_default())
}

fn next(target: &Target, stream: &mut Stream, kept: &mut Vec<Vec<u8>>) -> Vec<u8> {
    let known = stream.index(kept.len().max(1));
    let mut input = match kept.get(known).filter(|_| stream.per_mille(400)) {
        Some(known) => known.clone(),
        None => target.make(stream.word()),
    };
    if stream.per_mille(600) {
        let other = &kept.get(stream.index(kept.len().max(1))).cloned().unwrap_or_default();
        for _ in 0..=stream.below(3) {
            change(stream, &mut input, other);
        }
        input.truncate(INPUT_BYTES_MAX);
    }
    if kept.len() < KEPT_MAX {
        kept.push(input.clone());
    } else if stream.per_mille(100) {
        let place = stream.index(kept.len());
        kept[place].clone_from(&input);
    }
    input
}

/// One small change, as a coverage-guided fuzzer makes them.
fn change(stream: &mut Stream, input: &mut Vec<u8>, other: &[u8]) {
    let at = stream.index(input.len() + 1);
    let length = 1 + stream.index(8);
    let end = (at + length).min(input.len());
    match stream.below(8) {
        0 => {
            if let Some(byte) = input.get_mut(at) {
                *byte ^= 1 << stream.below(8);
            }
        }
        1 => {
            if let Some(byte) = input.get_mut(at) {
                *byte = stream.pick(&[0, 1, 0x7f, 0x80, 0xff, b'/']);
            }
        }
        2 => drop(input.drain(at..end)),
        3 => drop(input.splice(at..at, stream.bytes::<8>().into_iter().take(length))),
        4 => {
            if let Some(word) = input[at..].first_chunk_mut::<4>() {
                *word = stream.pick(&[0_i32, -1, -2, 1, 0xff, 0xffff, i32::MAX, i32::MIN]).to_be_bytes();
            }
        }
        5 => {
            let copied = input[at..end].to_vec();
            let to = stream.index(input.len() + 1);
            drop(input.splice(to..to, copied));
        }
        6 if !other.is_empty() => {
            let from = stream.index(other.len());
            let piece = other[from..].iter().take(1 + stream.index(100)).copied();
            drop(input.splice(at..end, piece));
        }
        _ => input.truncate(at.max(1)),
    }
}

/// The shortest input found, within limits, that still fails.
fn shrink(target: &Target, mut input: Vec<u8>) -> Vec<u8> {
    let quiet = panic::take_hook();
    panic::set_hook(Box::new(|_| {}));
    let mut attempts = 0;
    let mut piece = input.len() / 2;
    while piece > 0 && attempts < SHRINK_ATTEMPTS {
        let before = input.len();
        let mut at = 0;
        while at < input.len() && attempts < SHRINK_ATTEMPTS {
            let mut shorter = input.clone();
            shorter.drain(at..(at + piece).min(shorter.len()));
            attempts += 1;
            if attempt(target, &shorter).is_err() {
                input = shorter;
            } else {
                at += piece.div_ceil(2);
            }
        }
        // A shorter input may have made larger pieces dispensable.
        piece = if input.len() < before && piece == 1 { input.len() / 2 } else { piece / 2 };
    }
    panic::set_hook(quiet);
    input
}
