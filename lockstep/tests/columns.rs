//! The list of columns.

use lockstep::columns::{Column, markdown};
use lockstep::{Recipe, Rollouts, recipe};

#[test]
fn the_document_has_the_list() {
    let document = include_str!("../../docs/columns.md");
    assert!(document.ends_with(&markdown()), "docs/columns.md is not `lockstep list --columns`");
}

#[test]
fn names_are_found_again() {
    assert_eq!(Column::named("second"), None);
    for column in Column::ALL {
        assert_eq!(Column::named(column.name()), Some(*column));
        assert!(!column.meaning().is_empty() && !column.from().is_empty());
    }
}

/// Every column is read by a recipe or a choice.
#[test]
fn every_column_is_read_by_a_recipe_or_a_choice() {
    let mut read = Vec::new();
    for name in recipe::names() {
        read.extend(Recipe::named(name).unwrap().reads().iter());
    }
    // Columns of choices that no named recipe makes.
    for chosen in ["ratio.level = \"given\"\n", "reward.weights.difficulty = [0.5, 2.0]\n"] {
        read.extend(Recipe::from_toml(chosen).unwrap().reads().iter());
    }
    let unread: Vec<&Column> = Column::ALL.iter().filter(|column| !read.contains(column)).collect();
    assert!(unread.is_empty(), "{unread:?}");
}

#[test]
fn a_batch_without_offsets_says_so() {
    let error = Rollouts::default().batch().unwrap_err().to_string();
    assert!(error.contains("cu_seqlens"), "{error}");
}
