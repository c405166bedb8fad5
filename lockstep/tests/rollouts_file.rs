//! Rollouts as a file: what is written is read, and errors name the tensor.
#![cfg(feature = "safetensors")]

use lockstep::columns::{Column, Shape};
use lockstep::{Error, RolloutsBuf};
use safetensors::tensor::TensorView;
use safetensors::{Dtype, SafeTensors};

#[test]
fn tokens_that_no_column_holds_are_limited() {
    let of = |end: u32| RolloutsBuf {
        cu_seqlens: Some(vec![0, 2, end]),
        cu_groups: Some(vec![0, 2]),
        rewards: Some(vec![1.0, 0.0]),
        ..RolloutsBuf::default()
    };
    let most = 1 << 24;
    assert_eq!(read(&of(most).to_safetensors().unwrap()).unwrap(), of(most));
    for end in [most + 1, 0xf9ff_0006] {
        let error = read(&of(end).to_safetensors().unwrap()).unwrap_err().to_string();
        assert!(error.contains(&format!("`cu_seqlens` ends at {end}, and no tensor")), "{error}");
    }
}

fn example() -> RolloutsBuf {
    RolloutsBuf {
        cu_seqlens: Some(vec![0, 2, 3, 5, 6]),
        cu_groups: Some(vec![0, 2, 4]),
        loss_mask: Some(vec![1, 1, 1, 0, 1, 1]),
        rewards: Some(vec![1.0, 0.0, f32::INFINITY, 1.0]),
        logp: Some(vec![-1.0, -2.0, -3.0, -4.0, -5.0, -6.0]),
        logp_old: Some(vec![-1.5; 6]),
        tokens: Some(vec![10, 11, 10, 12, 13, u32::MAX]),
        role_values: Some(vec![0.25, 1e-300]),
        cu_turns: Some(vec![0, 1, 2, 3, 5, 6]),
        turn_rewards: Some(vec![0.0, 1.0, 0.0, 0.5, 1.0]),
        cu_steps: Some(vec![0, 2, 3, 4, 5]),
        cu_step_tokens: Some(vec![0, 1, 2, 3, 5, 6]),
        step: Some(vec![7]),
        seed: Some(vec![u64::MAX]),
        ..RolloutsBuf::default()
    }
}

fn read(bytes: &[u8]) -> Result<RolloutsBuf, Error> {
    RolloutsBuf::from_safetensors(bytes, false).map(|(rollouts, _)| rollouts)
}

#[test]
fn round_trip() {
    let bytes = example().to_safetensors().unwrap();
    assert_eq!(read(&bytes).unwrap(), example());
    assert_eq!(bytes, example().to_safetensors().unwrap());
    for cut in 0..bytes.len() {
        assert!(read(&bytes[..cut]).is_err());
    }
}

#[test]
fn every_column_is_written_and_read() {
    let full = |column: Column| match column.shape() {
        shape if shape.is_offsets() => vec![0, 1],
        Shape::Three => vec![1, 1, 1],
        _ => vec![1],
    };
    let bytes_of = |column: Column| -> Vec<u8> {
        let bytes = |x: u8| match column.element().bytes() {
            4 if column.element().name() == "f32" => (f32::from(x) / -2.0).to_le_bytes().to_vec(),
            8 if column.element().name() == "f64" => (f64::from(x) / -2.0).to_le_bytes().to_vec(),
            n => (0..n).map(|i| if i == 0 { x } else { 0 }).collect(),
        };
        full(column).into_iter().flat_map(bytes).collect()
    };
    let dtype = |column: Column| match column.element().name() {
        "u8" => Dtype::U8,
        "u32" => Dtype::U32,
        "u64" => Dtype::U64,
        "f32" => Dtype::F32,
        _ => Dtype::F64,
    };
    let data: Vec<_> =
        Column::ALL.iter().map(|c| (c.name(), dtype(*c), full(*c).len(), bytes_of(*c))).collect();
    let views = data.iter().map(|(n, t, len, b)| (*n, TensorView::new(*t, vec![*len], b).unwrap()));
    let rollouts = read(&safetensors::serialize(views, None).unwrap()).unwrap();
    assert!(Column::ALL.iter().all(|column| rollouts.view().length(*column).is_some()));
    assert_eq!(read(&rollouts.to_safetensors().unwrap()).unwrap(), rollouts);
}

fn file(tensors: &[(&str, Dtype, &[usize], &[u8])]) -> Vec<u8> {
    let views = tensors
        .iter()
        .map(|(name, dtype, shape, bytes)| (*name, TensorView::new(*dtype, shape.to_vec(), bytes).unwrap()));
    safetensors::serialize(views, None).unwrap()
}

#[test]
fn other_number_types_are_read() {
    let cu_seqlens: Vec<u8> = [0_i64, 1, 2].iter().flat_map(|x| x.to_le_bytes()).collect();
    let cu_groups: Vec<u8> = [0_i32, 2].iter().flat_map(|x| x.to_le_bytes()).collect();
    let rewards: Vec<u8> = [1.0_f64, 0.0].iter().flat_map(|x| x.to_le_bytes()).collect();
    let read = read(&file(&[
        ("cu_seqlens", Dtype::I64, &[3], &cu_seqlens),
        ("cu_groups", Dtype::I32, &[2], &cu_groups),
        ("rewards", Dtype::F64, &[2], &rewards),
        // −1, −2, and −1.5, −2⁻²⁴.
        ("logp", Dtype::BF16, &[2], &[0x80, 0xbf, 0x00, 0xc0]),
        ("logp_old", Dtype::F16, &[2], &[0x00, 0xbe, 0x01, 0x80]),
        ("loss_mask", Dtype::BOOL, &[2], &[1, 0]),
        ("step", Dtype::I64, &[], &[9, 0, 0, 0, 0, 0, 0, 0]),
        ("reward_components", Dtype::BF16, &[1, 2], &[0x80, 0x3f, 0, 0]),
    ]))
    .unwrap();
    assert_eq!(read.cu_seqlens, Some(vec![0, 1, 2]));
    assert_eq!(read.logp, Some(vec![-1.0, -2.0]));
    assert_eq!(read.logp_old, Some(vec![-1.5, -(0.5_f32.powi(24))]));
    assert_eq!(read.loss_mask, Some(vec![1, 0]));
    assert_eq!(read.step, Some(vec![9]));
    assert_eq!(read.reward_components, Some(vec![1.0, 0.0]));
}

#[test]
fn errors_name_the_tensor() {
    let broken = |change: fn(&mut RolloutsBuf)| {
        let mut rollouts = example();
        change(&mut rollouts);
        read(&rollouts.to_safetensors().unwrap()).unwrap_err().to_string()
    };
    for (found, expected) in [
        (broken(|r| r.rewards = Some(vec![1.0; 3])), "rewards"),
        (broken(|r| r.tokens = Some(vec![1; 5])), "tokens"),
        (broken(|r| r.cu_seqlens = Some(vec![0, 4, 3, 5, 6])), "cu_seqlens"),
        (broken(|r| r.cu_seqlens = Some(vec![0, 0, 3, 5, 6])), "cu_seqlens"),
        (broken(|r| r.cu_seqlens = Some(Vec::new())), "cu_seqlens"),
        (broken(|r| r.cu_seqlens = None), "tensor `cu_seqlens` is missing"),
        (broken(|r| r.cu_groups = Some(vec![0, 9, 4])), "cu_groups"),
        (
            broken(|r| r.loss_mask = Some(vec![1, 1, 1, 1, 2, 1])),
            "tensor `loss_mask`[4] is 2: expected 0 or 1",
        ),
        (broken(|r| r.cu_turns = Some(vec![0, 1, 3, 3, 5, 6])), "`cu_turns` lacks 2"),
        (broken(|r| r.turn_rewards = Some(vec![0.0])), "turn_rewards"),
        (broken(|r| r.cu_steps = Some(vec![0, 1, 3, 4, 5])), "`cu_steps`[1]"),
        (broken(|r| r.cu_steps = Some(vec![0, 2, 3, 4, 5, 5])), "`cu_steps` has 6 entries"),
        (broken(|r| r.cu_steps = Some(vec![0, 2, 3, 4, 9])), "cu_steps"),
        (broken(|r| r.cu_step_tokens = Some(vec![0, 1, 2, 3, 5, 7])), "cu_step_tokens"),
        (broken(|r| r.step = Some(vec![1, 2])), "step"),
    ] {
        assert!(found.contains(expected), "{found}\nexpected {expected}");
    }
    let of = |name: &str, dtype, shape: &[usize], bytes: &[u8]| {
        read(&file(&[(name, dtype, shape, bytes)])).unwrap_err().to_string()
    };
    assert!(
        of("cu_seqlens", Dtype::I32, &[1], &(-3_i32).to_le_bytes())
            .contains("`cu_seqlens`[0] is -3: expected 0 to")
    );
    assert!(of("logp", Dtype::U8, &[1], &[1]).contains("`logp` has type U8: expected F32"));
    assert!(of("logp", Dtype::F64, &[1], &1e300_f64.to_le_bytes()).contains("`logp`[0] is"));
    assert!(of("logp", Dtype::F32, &[1, 1], &[0; 4]).contains("`logp` has shape [1, 1]"));
    let turned = [
        ("cu_seqlens", Dtype::U32, &[4][..], bytemuck::bytes_of(&[0_u32, 1, 2, 3])),
        ("cu_groups", Dtype::U32, &[2], bytemuck::bytes_of(&[0_u32, 3])),
        ("reward_components", Dtype::F32, &[3, 2], &[0; 24]),
    ];
    let said = read(&file(&turned)).unwrap_err().to_string();
    assert!(said.contains("`reward_components` has 2 columns: expected 3"), "{said}");
}

#[test]
fn an_unknown_tensor_is_an_error_unless_it_is_let_through() {
    let plain = example().to_safetensors().unwrap();
    let plain = SafeTensors::deserialize(&plain).unwrap();
    let mut views = plain.tensors();
    views.push(("logprob".into(), TensorView::new(Dtype::F32, vec![1], &[0; 4]).unwrap()));
    let bytes = safetensors::serialize(views, None).unwrap();
    let message = read(&bytes).unwrap_err().to_string();
    assert!(
        message.contains("`logprob` is not a column: expected one of cu_seqlens")
            && message.contains("logp_old"),
        "{message}"
    );
    let (rollouts, unknown) = RolloutsBuf::from_safetensors(&bytes, true).unwrap();
    assert_eq!((rollouts, unknown), (example(), vec!["logprob".to_owned()]));
}
