//! The house rules hold for this repository.

#[test]
fn house_rules() {
    let tree = xtask::tidy::Tree::read(&xtask::root()).unwrap();
    assert!(tree.files.len() > 100, "only {} files read", tree.files.len());
    let found: Vec<String> = tree.check().iter().map(ToString::to_string).collect();
    assert!(found.is_empty(), "\n{}\n", found.join("\n"));
}
