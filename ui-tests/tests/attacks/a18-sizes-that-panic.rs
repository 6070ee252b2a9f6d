//! Row u: zero and huge sizes that pass pricing and then panic or abort. Each is a typed error that names the field.

#![forbid(unsafe_code)]

use memtier::*;
use ui_tests::*;

fn refusal(change: impl FnOnce(&mut LlamaSpec<Host>)) -> PlanError {
    let mut sizes = spec();
    change(&mut sizes);
    let mut engine = loading();
    let _lines = engine.declare_bundle::<Llama>(sizes);
    engine.plan(limits::<Host>()).err().expect("refused").report
}

fn size(error: PlanError) -> SizeError {
    match error {
        PlanError::Size(error) => error,
        other => panic!("{other}"),
    }
}

pub fn main() -> Result<(), Error> {
    let absurd = Blocks::new(1 << 33);
    assert!(matches!(size(refusal(|spec| spec.work.max_batch = 0)), SizeError::Zero { field: "tokens" }));
    assert!(matches!(size(refusal(|spec| spec.weights.hidden = 0)), SizeError::Zero { .. }));
    assert!(matches!(size(refusal(|spec| spec.weights.hidden = usize::MAX)), SizeError::Overflow { .. }));
    assert!(matches!(size(refusal(|spec| spec.kv.block_elements = 0)), SizeError::Zero { .. }));
    assert!(matches!(size(refusal(|spec| spec.kv.per_block = Tokens::ZERO)), SizeError::Zero { .. }));
    assert!(matches!(size(refusal(|spec| spec.kv.step = Blocks::ZERO)), SizeError::Zero { .. }));
    assert!(matches!(size(refusal(|spec| spec.kv.most = absurd)), SizeError::TooMany { .. }));
    assert!(matches!(size(refusal(|spec| spec.kv.block_elements = usize::MAX)), SizeError::Overflow { .. }));
    assert!(matches!(size(refusal(|spec| spec.table.columns = usize::MAX)), SizeError::Overflow { .. }));
    assert!(matches!(size(refusal(|spec| spec.table.rows = 0)), SizeError::Zero { .. }));
    assert!(matches!(refusal(|spec| spec.table.columns = 1 << 40), PlanError::DoesNotFit(_)));

    let mut engine = loading();
    let _pinned: Line<Pinned<f32>> = engine.declare(PinnedSpec { len: usize::MAX });
    assert!(matches!(engine.plan(limits::<Host>()).err().map(|refused| refused.report), Some(PlanError::Size(_))));
    let mut engine = loading();
    let _stream: Line<Stream<Host>> = engine.declare(StreamSpec { scratch: Bytes::MAX });
    assert!(matches!(engine.plan(limits::<Host>()).err().map(|refused| refused.report), Some(PlanError::Size(_))));

    let (mut engine, mut stream) = carved();
    let mut load = engine.load(&mut stream)?;
    assert!(load.staging.take::<f32>(usize::MAX).is_err());
    assert!(load.scratch.take::<f32>(usize::MAX).is_err());
    Ok(())
}
