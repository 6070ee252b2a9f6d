//! The kernels on tensors of real models: `ENGINE_KERNELS_GGUF=a.gguf:b.gguf cargo test -p engine-kernels`.

mod common;

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{BufReader, Read, Seek, SeekFrom};

use common::{Matrix, Rng, bits, quantized};
use engine_kernels::{Format, Input, Isa, QuantRows, Threads, dequantize_raw_row, dequantize_row, matmul};

/// Rows that a test takes of a tensor.
const ROWS: usize = 48;

struct Tensor {
    name: String,
    dims: Vec<u64>,
    format: Option<Format>,
    offset: u64,
}

struct Gguf {
    file: BufReader<File>,
    tensors: Vec<Tensor>,
    data: u64,
}

impl Gguf {
    fn open(path: &str) -> std::io::Result<Gguf> {
        let mut gguf = Gguf { file: BufReader::new(File::open(path)?), tensors: Vec::new(), data: 0 };
        assert_eq!(&gguf.bytes(4)?, b"GGUF", "{path}");
        gguf.u32()?;
        let (tensors, keys) = (gguf.u64()?, gguf.u64()?);
        let mut alignment = 32;
        for _ in 0..keys {
            let key = gguf.string()?;
            let kind = gguf.u32()?;
            if key == "general.alignment" {
                alignment = u64::from(gguf.u32()?);
            } else {
                gguf.skip_value(kind)?;
            }
        }
        for _ in 0..tensors {
            let name = gguf.string()?;
            let count = gguf.u32()?;
            let dims = (0..count).map(|_| gguf.u64()).collect::<Result<_, _>>()?;
            let format = Format::from_ggml_type(gguf.u32()?);
            let offset = gguf.u64()?;
            gguf.tensors.push(Tensor { name, dims, format, offset });
        }
        gguf.data = gguf.file.stream_position()?.next_multiple_of(alignment);
        Ok(gguf)
    }

    fn bytes(&mut self, count: u64) -> std::io::Result<Vec<u8>> {
        let mut bytes = vec![0; count as usize];
        self.file.read_exact(&mut bytes)?;
        Ok(bytes)
    }

    fn u32(&mut self) -> std::io::Result<u32> {
        Ok(u32::from_le_bytes(self.bytes(4)?.try_into().unwrap()))
    }

    fn u64(&mut self) -> std::io::Result<u64> {
        Ok(u64::from_le_bytes(self.bytes(8)?.try_into().unwrap()))
    }

    fn string(&mut self) -> std::io::Result<String> {
        let count = self.u64()?;
        Ok(String::from_utf8_lossy(&self.bytes(count)?).into_owned())
    }

    fn skip_value(&mut self, kind: u32) -> std::io::Result<()> {
        match kind {
            0 | 1 | 7 => self.bytes(1).map(|_| ()),
            2 | 3 => self.bytes(2).map(|_| ()),
            4..=6 => self.bytes(4).map(|_| ()),
            10..=12 => self.bytes(8).map(|_| ()),
            8 => self.string().map(|_| ()),
            9 => {
                let kind = self.u32()?;
                let count = self.u64()?;
                (0..count).try_for_each(|_| self.skip_value(kind))
            }
            _ => panic!("value type {kind}"),
        }
    }

    /// The first rows of a tensor.
    fn rows(&mut self, index: usize, rows: usize) -> std::io::Result<Vec<u8>> {
        let (offset, cols) = (self.tensors[index].offset, self.tensors[index].dims[0] as usize);
        let row_bytes = self.tensors[index].format.unwrap().row_bytes(cols).unwrap();
        self.file.seek(SeekFrom::Start(self.data + offset))?;
        self.bytes((rows * row_bytes) as u64)
    }
}

#[test]
fn real_tensors_survive_packing_and_multiply_well() {
    let Ok(paths) = std::env::var("ENGINE_KERNELS_GGUF") else {
        println!("skipped: ENGINE_KERNELS_GGUF names no models");
        return;
    };
    for path in paths.split(':') {
        let mut gguf = Gguf::open(path).unwrap_or_else(|error| panic!("{path}: {error}"));
        // One tensor of each format and role.
        let mut seen = BTreeSet::new();
        for index in 0..gguf.tensors.len() {
            let tensor = &gguf.tensors[index];
            let role = tensor.name.split('.').filter(|part| part.parse::<u32>().is_err()).collect::<Vec<_>>().join(".");
            if tensor.dims.len() != 2 || !seen.insert((role, tensor.format)) {
                continue;
            }
            let format = tensor.format.unwrap_or_else(|| panic!("{} has a format that the kernels lack", tensor.name));
            let (name, cols, rows) = (tensor.name.clone(), tensor.dims[0] as usize, ROWS.min(tensor.dims[1] as usize));
            let raw = gguf.rows(index, rows).unwrap();
            let noise = check(format, rows, cols, raw);
            println!("{name}: {format}, relative noise of quantised activations {noise:.2e}");
        }
    }
}

/// Checks a real matrix and measures what quantising activations costs.
fn check(format: Format, rows: usize, cols: usize, raw: Vec<u8>) -> f64 {
    let row_bytes = format.row_bytes(cols).unwrap();
    let matrix = Matrix::new(format, rows, cols, raw);
    let mut row = vec![0.0; cols];
    for (index, (raw, values)) in matrix.raw.chunks_exact(row_bytes).zip(matrix.values.chunks_exact(cols)).enumerate() {
        dequantize_raw_row(format, raw, &mut row).unwrap();
        assert!(bits(&row) == bits(values), "{format} raw row {index}");
        dequantize_row(&matrix.packed(), index, &mut row).unwrap();
        assert!(bits(&row) == bits(values), "{format} packed row {index}");
    }

    let threads = Threads::new(2).unwrap();
    let m = 9;
    let x = Rng::new(60).activations(m * cols);
    let quant = if format.is_float() { Vec::new() } else { quantized(Isa::detect(), &x, m, cols) };
    let (input, seen) = if format.is_float() {
        (Input::Float { x: &x, rows: m, cols }, x.clone())
    } else {
        let rows = QuantRows::new(m, cols, &quant).unwrap();
        let mut seen = vec![0.0; x.len()];
        seen.chunks_exact_mut(cols).enumerate().for_each(|(row, seen)| rows.dequantize_row(row, seen).unwrap());
        (rows.into(), seen)
    };
    let (tight, loose) = (matrix.reference(&seen, m), matrix.reference(&x, m));
    let mut first: Option<Vec<u32>> = None;
    let mut out = vec![0.0; m * rows];
    for isa in Isa::available() {
        matmul(&threads, isa, &matrix.packed(), input, &mut out).unwrap();
        for (found, (sum, size)) in out.iter().zip(&tight) {
            assert!((f64::from(*found) - sum).abs() <= 1e-6 * size, "{format} {isa:?}: {found} for {sum}");
        }
        assert!(*first.get_or_insert_with(|| bits(&out)) == bits(&out), "{format} {isa:?}");
    }
    let noise: f64 = out.iter().zip(&loose).map(|(found, (sum, _))| (f64::from(*found) - sum).powi(2)).sum();
    let signal: f64 = loose.iter().map(|(sum, _)| sum.powi(2)).sum();
    let relative = (noise / signal).sqrt();
    assert!(relative < 1.5e-2, "{format}: {relative:e}");
    relative
}
