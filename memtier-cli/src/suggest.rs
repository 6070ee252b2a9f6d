//! "Did you mean": the nearest of a few words.

/// The word nearest to what was typed, when it is near enough to be what was meant.
///
/// ```
/// use memtier_cli::suggest::nearest;
/// assert_eq!(nearest("max-seqlen", ["max-seq-len", "max-batch"]), Some("max-seq-len"));
/// assert_eq!(nearest("q8", ["q8_0", "q4_0", "f16"]), Some("q8_0"));
/// assert_eq!(nearest("zebra", ["f16", "bf16"]), None);
/// ```
pub fn nearest<'w>(typed: &str, words: impl IntoIterator<Item = &'w str>) -> Option<&'w str> {
    let typed = typed.to_lowercase();
    let near = words
        .into_iter()
        .map(|word| (distance(&typed, &word.to_lowercase()), word))
        .min_by_key(|(distance, _)| *distance)?;
    // A third of the word may be wrong, or the rest of it missing.
    let allowed = (near.1.chars().count() / 3).max(1);
    (near.0 <= allowed || (typed.len() > 1 && near.1.to_lowercase().starts_with(&typed))).then_some(near.1)
}

/// `(did you mean "word"?)` with a space before it, or nothing.
pub fn did_you_mean<'w>(typed: &str, words: impl IntoIterator<Item = &'w str>) -> String {
    nearest(typed, words).map_or_else(String::new, |word| format!(" (did you mean \"{word}\"?)"))
}

/// Insertions, deletions, replacements and swaps of neighbours that make one word the other.
fn distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    let mut before: Vec<usize> = Vec::new();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for i in 1..=a.len() {
        let mut next = vec![i; b.len() + 1];
        for j in 1..=b.len() {
            let replaced = row[j - 1] + usize::from(a[i - 1] != b[j - 1]);
            next[j] = replaced.min(row[j] + 1).min(next[j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                next[j] = next[j].min(before[j - 2] + 1);
            }
        }
        before = std::mem::replace(&mut row, next);
    }
    row[b.len()]
}
