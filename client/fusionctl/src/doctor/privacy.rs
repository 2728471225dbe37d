//! What leaves the machine in a report: nothing that tells whose it is.

use std::path::Path;

/// Who must not be recognised.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Person {
    /// The home directory, as the environment and as the file system name it.
    pub(crate) homes: Vec<String>,
    /// The user's name.
    pub(crate) user: Option<String>,
    /// The machine's name.
    pub(crate) host: Option<String>,
}

/// What stands for the home directory.
const HOME: &str = "~";
/// Where homes are: whatever follows in a path is a name.
const HOMES: [&str; 2] = ["/Users/", "/home/"];

impl Person {
    /// Who asks, by the environment.
    pub(crate) fn of_environment() -> Self {
        let set = |name| std::env::var(name).ok().filter(|value: &String| !value.is_empty());
        let home = set("HOME");
        let real = home.as_deref().and_then(|home| Path::new(home).canonicalize().ok());
        let real = real.map(|home| home.to_string_lossy().into_owned());
        let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
        Self {
            homes: home.into_iter().chain(real).filter(|home| home.len() > 1).collect(),
            user: set("USER").or_else(|| set("LOGNAME")),
            host: Some(host).filter(|host| !host.is_empty()),
        }
    }

    /// The text without anything that tells who it is.
    pub(crate) fn scrub(&self, text: &str) -> String {
        let mut homes: Vec<&str> = self.homes.iter().map(String::as_str).collect();
        // One may begin with the other.
        homes.sort_by_key(|home| std::cmp::Reverse(home.len()));
        let mut text = homes.into_iter().fold(text.to_owned(), |text, home| replace_path(&text, home));
        for homes in HOMES {
            text = replace_names_behind(&text, homes);
        }
        let short_host = self.host.as_deref().and_then(|host| host.split('.').next());
        for (secret, word) in
            [(self.user.as_deref(), "USER"), (self.host.as_deref(), "HOST"), (short_host, "HOST")]
        {
            if let Some(secret) = secret {
                text = replace_word(&text, secret, word);
            }
        }
        text
    }
}

/// The home directory where a path begins with it.
fn replace_path(text: &str, home: &str) -> String {
    replace_where(text, home.trim_end_matches('/'), HOME, |_, behind| !behind.is_some_and(is_of_a_name))
}

/// A whole word, however it is written. Names of one letter are no names.
fn replace_word(text: &str, word: &str, with: &str) -> String {
    if word.chars().count() < 2 {
        return text.to_owned();
    }
    replace_where(text, word, with, |before, behind| {
        !before.is_some_and(is_of_a_name) && !behind.is_some_and(is_of_a_name)
    })
}

fn is_of_a_name(character: char) -> bool {
    character.is_alphanumeric() || character == '_'
}

/// Replaces `what` where the characters around it are as they should be; upper and lower case are the same.
fn replace_where(
    text: &str,
    what: &str,
    with: &str,
    fits: impl Fn(Option<char>, Option<char>) -> bool,
) -> String {
    let (lower, what) = (text.to_ascii_lowercase(), what.to_ascii_lowercase());
    let mut result = String::with_capacity(text.len());
    let mut at = 0;
    while let Some(found) = (!what.is_empty()).then(|| lower[at..].find(&what)).flatten() {
        let (start, end) = (at + found, at + found + what.len());
        result.push_str(&text[at..start]);
        let fits = fits(text[..start].chars().next_back(), text[end..].chars().next());
        result.push_str(if fits { with } else { &text[start..end] });
        at = end;
    }
    result + &text[at..]
}

/// The name behind "/Users/": other people have homes, too.
fn replace_names_behind(text: &str, homes: &str) -> String {
    let mut parts = text.split(homes);
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |result, part| {
        let name =
            part.find(|character: char| character == '/' || character.is_whitespace()).unwrap_or(part.len());
        result + homes + "USER" + &part[name..]
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn anna() -> Person {
        Person {
            homes: vec!["/Users/anna".to_owned(), "/Volumes/Data/Users/anna".to_owned()],
            user: Some("anna".to_owned()),
            host: Some("Annas-MacBook.local".to_owned()),
        }
    }

    #[test]
    fn nothing_tells_who_it_is() {
        let cases = [
            ("/Users/anna/.fusion/run/fusiond.sock", "~/.fusion/run/fusiond.sock"),
            ("in '/Volumes/Data/Users/anna'", "in '~'"),
            ("/Users/annabel/x and /home/bob/y", "/Users/USER/x and /home/USER/y"),
            ("anna@Annas-MacBook.local, annas-macbook: Hannah's", "USER@HOST, HOST: Hannah's"),
            ("/private/var/anna/x", "/private/var/USER/x"),
        ];
        for (text, scrubbed) in cases {
            assert_eq!(anna().scrub(text), scrubbed);
        }
    }

    proptest! {
        #[test]
        fn whatever_is_around_it_the_home_is_gone(before in "[ -~äß]{0,20}", behind in "[ -~äß]{0,20}") {
            let scrubbed = anna().scrub(&format!("{before} /Users/anna/{behind}"));
            prop_assert!(!scrubbed.contains("/Users/anna/"), "{}", scrubbed);
        }
    }
}
