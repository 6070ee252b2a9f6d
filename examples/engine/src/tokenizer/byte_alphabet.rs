//! GPT-2's alphabet of 256 printable characters, one for each byte, in which byte-level vocabularies are written.

/// The bytes that stand for themselves; the others take the characters from U+0100 on, in order.
const fn is_itself(byte: u8) -> bool {
    matches!(byte, 0x21..=0x7e | 0xa1..=0xac | 0xae..=0xff)
}

const CHARS: [char; 256] = {
    let mut chars = ['\0'; 256];
    let (mut byte, mut next) = (0usize, 0u32);
    while byte < 256 {
        let code = if is_itself(byte as u8) {
            byte as u32
        } else {
            next += 1;
            0xff + next
        };
        chars[byte] = match char::from_u32(code) {
            Some(char) => char,
            None => unreachable!(),
        };
        byte += 1;
    }
    chars
};

/// Writes bytes in the alphabet.
pub(super) fn encode(bytes: &[u8]) -> String {
    bytes.iter().map(|&byte| CHARS[usize::from(byte)]).collect()
}

/// Reads a token's text back into bytes. A character that is not of the alphabet, which added tokens may have, stands
/// for itself.
pub(super) fn decode(text: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(text.len());
    for char in String::from_utf8_lossy(text).chars() {
        match byte(char) {
            Some(byte) => bytes.push(byte),
            None => bytes.extend_from_slice(char.encode_utf8(&mut [0; 4]).as_bytes()),
        }
    }
    bytes
}

fn byte(char: char) -> Option<u8> {
    match u32::from(char) {
        code @ 0..=0xff => Some(code as u8).filter(|&byte| is_itself(byte)),
        // The 68 others are few enough to look through, and rare but for the space and the line feed.
        0x100..=0x143 => CHARS.iter().position(|&other| other == char).map(|byte| byte as u8),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_has_its_own_character_and_comes_back() {
        let all: Vec<u8> = (0..=255).collect();
        let text = encode(&all);
        assert_eq!(text.chars().collect::<std::collections::HashSet<_>>().len(), 256);
        assert_eq!(decode(text.as_bytes()), all);
        assert_eq!(encode(b" \n"), "\u{120}\u{10a}");
        assert_eq!(decode("\u{120}\u{4e2d}".as_bytes()), " \u{4e2d}".as_bytes());
    }
}
