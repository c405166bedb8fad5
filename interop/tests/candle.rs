//! candle: losses and gradients have the bits of Rust's own calls, and errors name what is wrong.

mod recipes;

use candle_core::{DType, Device as Candle, Tensor, Var};
use lockstep::{Device, RolloutsBuf};
use lockstep_interop::{Error, Loss, Policy, candle};
use recipes::{Case, Got, all, same};

fn var(values: &[f32]) -> Var {
    Var::from_tensor(&Tensor::new(values, &Candle::Cpu).unwrap()).unwrap()
}

fn floats(tensor: &Tensor) -> Vec<f32> {
    tensor.to_dtype(DType::F32).unwrap().flatten_all().unwrap().to_vec1().unwrap()
}

fn scalar(tensor: &Tensor) -> f32 {
    tensor.to_scalar().unwrap()
}

/// Computes the loss of leaves through `view`, and the gradients with respect to the leaves.
fn framework(case: &Case, scale: f32, view: impl Fn(&Tensor) -> Tensor) -> Got {
    let leaves = case.tensors.each_ref().map(|values| values.as_deref().map(var));
    let tensors = leaves.each_ref().map(|leaf| leaf.as_ref().map(|leaf| view(leaf)));
    let [Some(logp), entropy, values] = &tensors else { panic!("no logp") };
    let policy = Policy { logp, entropy: entropy.as_ref(), values: values.as_ref() };
    let out =
        candle::loss(&case.recipe, &Device::cpu(), &case.rollouts.view(), &case.credit, policy).unwrap();
    let mut sum = out.loss.clone();
    if let Some(value) = &out.value_loss {
        sum = (sum + value).unwrap();
    }
    let gradients = (sum * f64::from(scale)).unwrap().backward().unwrap();
    assert_eq!(out.terms, case.expected, "{}", case.recipe.name);
    Got {
        loss: scalar(&out.loss),
        value_loss: out.value_loss.as_ref().map(scalar),
        gradients: leaves.map(|leaf| leaf.and_then(|leaf| gradients.get(&leaf).map(floats))),
    }
}

#[test]
fn every_recipe() {
    all(|case, scale| framework(case, scale, Tensor::clone));
}

#[test]
fn padded_and_with_strides() {
    let case = Case::padded();
    let rows = |leaf: &Tensor| leaf.reshape((8, 12)).unwrap();
    same("rows", &framework(&case, 1.0, rows), &case.expected(1.0));
    let every_other = |leaf: &Tensor| {
        let wide = Tensor::stack(&[rows(leaf), rows(leaf).detach()], 2).unwrap();
        let view = wide.narrow(2, 0, 1).unwrap().squeeze(2).unwrap();
        assert!(!view.is_contiguous());
        view
    };
    same("strides", &framework(&case, 1.0, every_other), &case.expected(1.0));
}

#[test]
fn other_floats_get_gradients_of_their_own() {
    let Case { recipe, rollouts, credit, tensors, .. } = Case::of("dapo");
    let wide = Tensor::new(tensors[0].as_deref().unwrap(), &Candle::Cpu).unwrap();
    for of in [DType::BF16, DType::F16, DType::F64] {
        let leaf = Var::from_tensor(&wide.to_dtype(of).unwrap()).unwrap();
        let out = candle::loss(&recipe, &Device::cpu(), &rollouts.view(), &credit, leaf.as_tensor()).unwrap();
        let gradient = out.loss.backward().unwrap().remove(&leaf).unwrap();
        assert_eq!((gradient.dtype(), out.loss.dtype()), (of, DType::F32));
        // The loss of the rounded numbers, with a rounded gradient.
        let logp = floats(&leaf);
        let view = lockstep::Rollouts { logp: Some(&logp), ..rollouts.view() };
        let own = recipe.loss(&Device::cpu(), &view, &credit).unwrap();
        let rounded = Tensor::new(&own.coef[..], &Candle::Cpu).unwrap().to_dtype(of).unwrap();
        assert_eq!(floats(&gradient), floats(&rounded), "{of:?}");
        assert_eq!(scalar(&out.loss), own.loss.unwrap() as f32);
    }
}

/// Returns the message of a refused call.
fn refused(case: &Case, rollouts: &RolloutsBuf, policy: Policy<'_, Tensor>) -> String {
    let out: Result<Loss<Tensor>, Error> =
        candle::loss(&case.recipe, &Device::cpu(), &rollouts.view(), &case.credit, policy);
    out.map(|_| ()).unwrap_err().to_string()
}

#[test]
fn what_is_wrong_is_named() {
    let case = Case::of("dapo");
    let logp = var(case.tensors[0].as_deref().unwrap());
    let of = |tensor: &Tensor| refused(&case, &case.rollouts, tensor.into());
    let short = of(&logp.narrow(0, 0, 95).unwrap());
    assert!(short.contains("logp") && short.contains("[96]") && short.contains("[95]"), "{short}");
    let rows = of(&logp.reshape((8, 12)).unwrap());
    assert!(rows.contains("cu_seqlens") && rows.contains("[8, 12]"), "{rows}");
    let cube = of(&logp.reshape((8, 3, 4)).unwrap());
    assert!(cube.contains("[8, 3, 4]"), "{cube}");
    let integers = of(&logp.to_dtype(DType::I64).unwrap());
    assert!(integers.contains("BF16") && integers.contains("I64"), "{integers}");
    let above = of(&(logp.as_tensor() + 9.0).unwrap());
    assert!(above.contains("logp"), "{above}");
    let without = RolloutsBuf { logp_old: None, ..case.rollouts.clone() };
    let column = refused(&case, &without, logp.as_tensor().into());
    assert!(column.contains("logp_old"), "{column}");
    let values = refused(&case, &case.rollouts, Policy { logp: &logp, entropy: None, values: Some(&logp) });
    assert!(values.contains("values") && values.contains("dapo"), "{values}");
}

#[test]
fn a_term_without_its_tensor_is_refused() {
    let names = lockstep::recipe::names();
    let cases = names.iter().map(|name| Case::of(name));
    let mut refusals = 0;
    for case in cases.filter(|case| case.tensors[1..].iter().any(Option::is_some)) {
        let logp = var(case.tensors[0].as_deref().unwrap());
        // The columns are present: what is missing is the tensor that receives the gradient.
        let [_, entropy, values] = case.tensors.clone();
        let rollouts = RolloutsBuf { entropy, values, ..case.rollouts.clone() };
        if case.expected.entropy.is_some() || case.expected.value.is_some() {
            let said = refused(&case, &rollouts, logp.as_tensor().into());
            assert!(said.contains("a tensor") && said.contains(&case.recipe.name), "{said}");
            refusals += 1;
        }
    }
    assert!(refusals > 1);
}
