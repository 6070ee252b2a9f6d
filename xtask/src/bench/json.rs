//! JSON out, with its keys in the order in which they were put (a diff of two reports should show numbers only), and
//! numbers in, from what a measured program prints.

use std::collections::HashMap;
use std::fmt;

use tinyjson::JsonValue;

/// A JSON value.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Json {
    /// Nothing known.
    Null,
    /// A finite number; anything else prints as `null`.
    Number(f64),
    /// A string.
    Text(String),
    /// An array.
    List(Vec<Json>),
    /// An object.
    Object(Vec<(String, Json)>),
}

impl Json {
    /// An object from literal keys.
    pub(super) fn object<const N: usize>(pairs: [(&str, Json); N]) -> Self {
        Self::Object(pairs.into_iter().map(|(key, value)| (key.to_owned(), value)).collect())
    }

    /// A string.
    pub(super) fn text(text: impl Into<String>) -> Self {
        Self::Text(text.into())
    }
}

impl fmt::Display for Json {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(number) if number.is_finite() => write!(f, "{number}"),
            Self::Number(_) | Self::Null => f.write_str("null"),
            Self::Text(text) => quote(text, f),
            Self::List(list) => {
                f.write_str("[")?;
                for (i, value) in list.iter().enumerate() {
                    write!(f, "{}{value}", if i > 0 { ", " } else { "" })?;
                }
                f.write_str("]")
            }
            Self::Object(pairs) => {
                f.write_str("{")?;
                for (i, (key, value)) in pairs.iter().enumerate() {
                    f.write_str(if i > 0 { ", " } else { "" })?;
                    quote(key, f)?;
                    write!(f, ": {value}")?;
                }
                f.write_str("}")
            }
        }
    }
}

fn quote(text: &str, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    f.write_str("\"")?;
    for c in text.chars() {
        match c {
            '"' | '\\' => write!(f, "\\{c}")?,
            c if c.is_control() => write!(f, "\\u{:04x}", u32::from(c))?,
            c => write!(f, "{c}")?,
        }
    }
    f.write_str("\"")
}

/// The last line of `output` that is a JSON object. Programs may talk before it.
pub(super) fn last_object(output: &str) -> Option<HashMap<String, JsonValue>> {
    output.lines().rev().find_map(|line| match line.trim().parse::<JsonValue>() {
        Ok(JsonValue::Object(object)) => Some(object),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_can_be_read() {
        let json = Json::object([
            ("name", Json::text("a \"b\" \\ \n é")),
            ("list", Json::List(vec![Json::Number(1.0), Json::Number(0.25), Json::Number(f64::NAN)])),
        ]);
        let text = json.to_string();
        assert!(text.starts_with("{\"name\": ") && text.ends_with("\"list\": [1, 0.25, null]}"), "{text}");
        let read = last_object(&text).unwrap();
        assert_eq!(read["name"].get::<String>().unwrap(), "a \"b\" \\ \n é");
    }

    #[test]
    fn the_last_object_counts() {
        let read = last_object("loading {\n{\"x\": 1}\n{\"x\": 2}\n[3]\nbye\n").unwrap();
        assert_eq!(*read["x"].get::<f64>().unwrap(), 2.0);
        assert!(last_object("nothing").is_none());
    }
}
