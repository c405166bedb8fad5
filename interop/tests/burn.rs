//! burn: losses and gradients have the bits of Rust's own calls, and errors name what is wrong.

mod recipes;

use burn_tensor::{DType, Device as Burn, FloatDType, Tensor, TensorData};
use lockstep::{Device, RolloutsBuf};
use lockstep_interop::{Policy, burn};
use recipes::{Case, Got, all, same};

fn leaf(values: &[f32]) -> Tensor<1> {
    Tensor::from_data(TensorData::new(values.to_vec(), [values.len()]), &Burn::flex().autodiff())
        .require_grad()
}

fn floats<const D: usize>(tensor: Tensor<D>) -> Vec<f32> {
    tensor.cast(FloatDType::F32).into_data().try_into_vec().unwrap()
}

/// Computes the loss of leaves through `view`, and the gradients with respect to the leaves.
fn framework<const D: usize>(case: &Case, scale: f32, view: impl Fn(Tensor<1>) -> Tensor<D>) -> Got {
    let leaves = case.tensors.each_ref().map(|values| values.as_deref().map(leaf));
    let tensors = leaves.clone().map(|leaf| leaf.map(&view));
    let [Some(logp), entropy, values] = &tensors else { panic!("no logp") };
    let policy = Policy { logp, entropy: entropy.as_ref(), values: values.as_ref() };
    let out = burn::loss(&case.recipe, &Device::cpu(), &case.rollouts.view(), &case.credit, policy).unwrap();
    assert_eq!(out.terms, case.expected, "{}", case.recipe.name);
    let (loss, value_loss) = (out.loss.clone(), out.value_loss.clone());
    let sum = out.value_loss.into_iter().fold(out.loss, |sum, value| sum + value);
    let gradients = (sum * scale).backward();
    let single = |tensor: Tensor<1>| floats(tensor)[0];
    Got {
        loss: single(loss),
        value_loss: value_loss.map(single),
        gradients: leaves.map(|leaf| leaf.and_then(|leaf| leaf.grad(&gradients).map(floats))),
    }
}

#[test]
fn every_recipe() {
    all(|case, scale| framework(case, scale, |leaf| leaf));
}

#[test]
fn padded_transposed_and_masked() {
    let case = Case::padded();
    same("rows", &framework(&case, 1.0, |leaf| leaf.reshape([8, 12])), &case.expected(1.0));
    let twice = |leaf: Tensor<1>| leaf.reshape([8, 12]).transpose().transpose();
    same("transposed", &framework(&case, 1.0, twice), &case.expected(1.0));
}

#[test]
fn other_floats_get_gradients_of_their_own() {
    let Case { recipe, rollouts, credit, tensors, .. } = Case::of("dapo");
    let wide = tensors[0].as_deref().unwrap();
    for (of, dtype) in
        [(FloatDType::BF16, DType::BF16), (FloatDType::F16, DType::F16), (FloatDType::F64, DType::F64)]
    {
        let leaf = leaf(wide).detach().cast(of).detach().require_grad();
        let out = burn::loss(&recipe, &Device::cpu(), &rollouts.view(), &credit, &leaf).unwrap();
        let gradient = leaf.grad(&out.loss.backward()).unwrap();
        assert_eq!((gradient.dtype(), out.loss.dtype()), (dtype, DType::F32));
        let logp = floats(leaf.clone());
        let view = lockstep::Rollouts { logp: Some(&logp), ..rollouts.view() };
        let own = recipe.loss(&Device::cpu(), &view, &credit).unwrap();
        let count = own.coef.len();
        let rounded =
            Tensor::<1>::from_data(TensorData::new(own.coef.clone(), [count]), &Burn::flex()).cast(of);
        assert_eq!(floats(gradient), floats(rounded), "{dtype:?}");
        assert_eq!(floats(out.loss), [own.loss.unwrap() as f32]);
    }
}

#[test]
fn without_autodiff_the_loss_is_a_number() {
    let case = Case::of("dapo");
    let values = case.tensors[0].clone().unwrap();
    let logp = Tensor::<1>::from_data(TensorData::new(values, [96]), &Burn::flex());
    let out = burn::loss(&case.recipe, &Device::cpu(), &case.rollouts.view(), &case.credit, &logp).unwrap();
    assert_eq!(floats(out.loss), [case.expected.loss.unwrap() as f32]);
}

#[test]
fn what_is_wrong_is_named() {
    let case = Case::of("dapo");
    let logp = leaf(case.tensors[0].as_deref().unwrap());
    fn refused<const D: usize>(case: &Case, rollouts: &RolloutsBuf, policy: Policy<'_, Tensor<D>>) -> String {
        let out = burn::loss(&case.recipe, &Device::cpu(), &rollouts.view(), &case.credit, policy);
        out.map(|_| ()).unwrap_err().to_string()
    }
    let short = refused(&case, &case.rollouts, (&logp.clone().narrow(0, 0, 95)).into());
    assert!(short.contains("logp") && short.contains("[96]") && short.contains("[95]"), "{short}");
    let rows = refused(&case, &case.rollouts, (&logp.clone().reshape([8, 12])).into());
    assert!(rows.contains("cu_seqlens") && rows.contains("[8, 12]"), "{rows}");
    let cube = refused(&case, &case.rollouts, (&logp.clone().reshape([8, 3, 4])).into());
    assert!(cube.contains("[8, 3, 4]"), "{cube}");
    let above = refused(&case, &case.rollouts, (&(logp.clone() + 9.0)).into());
    assert!(above.contains("logp"), "{above}");
    let without = RolloutsBuf { logp_old: None, ..case.rollouts.clone() };
    let column = refused(&case, &without, (&logp).into());
    assert!(column.contains("logp_old"), "{column}");
    let policy = Policy { logp: &logp, entropy: Some(&logp), values: None };
    let entropy = refused(&case, &case.rollouts, policy);
    assert!(entropy.contains("entropy") && entropy.contains("dapo"), "{entropy}");
}
