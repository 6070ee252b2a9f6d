//! More than 16 rows of inputs with rows of few weights: kernels that read tiles once for 16, 32 or 64 of them.

use super::*;

/// Some outputs of matrices side by side, many of them, a vocabulary, as the kernels' choice goes on a small device, and shapes at random.
fn rows_of<B: Random>(within: f64) {
    let mut rng = Rng(61);
    let mut shapes: Vec<Shape> =
        vec![(33, 1, vec![20, 9, 5]), (48, 2, vec![40]), (64, 3, vec![70, 16, 33]), (70, 1, vec![200])];
    // Rows of up to 2048 weights, some of which end in the middle of a tile.
    let most = 700 / B::PER;
    for _ in 0..4 {
        let outputs = (0..1 + rng.below(3)).map(|_| 1 + rng.below(60)).collect();
        shapes.push((17 + rng.below(60), 1 + rng.below(most.max(1)), outputs));
    }
    shapes_of::<B>(within, &shapes);
}

#[test]
fn batches_with_blocks_of_32() {
    rows_of::<Q8_0>(2e-5);
    rows_of::<Q4_1>(2e-5);
    rows_of::<Q5_0>(2e-5);
}

#[test]
fn batches_with_super_blocks() {
    rows_of::<Q4_K>(6e-4);
    rows_of::<Q6_K>(6e-4);
}

#[test]
fn batches_by_a_vocabulary() {
    shapes_of::<Q8_0>(2e-5, &[(65, 1, vec![6000, 145])]);
    shapes_of::<Q4_0>(2e-5, &[(40, 1, vec![6145])]);
    shapes_of::<Q5_0>(2e-5, &[(33, 1, vec![6161])]);
    shapes_of::<Q6_K>(6e-4, &[(33, 1, vec![6150])]);
}

#[test]
fn rows_of_a_batch_have_the_same_bits_beside_any_others() {
    let Some(Rig { kernels, mut engine, mut stream, .. }) = rig() else { return };
    let (mut rng, columns, most) = (Rng(62), 32, 64);
    let x = rng.bf16s(most * columns);
    for outputs in [20, 300, 6150] {
        let (tiles, _) = matrix::<Q8_0>(&mut rng, outputs, columns);
        let mut step = engine.step(&mut stream).unwrap();
        let (inputs, span) = (span!(step, bf16, x, bf16::NAN), span!(step, u8, tiles, 0xff));
        let tiles = span.read().range(0..tiles.len()).unwrap();
        let matrix = TiledMatrix::new(tiles, Tiling::Q8, outputs, columns).unwrap().at_rest();
        let mut of = |rows: usize| {
            let mut out = step.scratch.take::<f32>(rows * outputs).unwrap();
            let x = inputs.read().range(0..rows * columns).unwrap();
            project_tiled_f32(step.on, &kernels, &mut out, &[matrix], x, rows).unwrap();
            read!(step, f32, out)
        };
        let all = of(most);
        for rows in [33, 63] {
            assert!(all.starts_with(&of(rows)), "{outputs} outputs: {rows} rows have other bits alone");
        }
    }
}
