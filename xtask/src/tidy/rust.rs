//! Rust sources: lengths, openings, and what must not be in them.

use proc_macro2::{TokenStream, TokenTree};
use syn::spanned::Spanned;
use syn::visit::{self, Visit};
use syn::{Attribute, Block, Expr, Meta};

use super::house::{ARCHITECTURE_LINES, ARCHITECTURES, FILE_LINES, FUNCTION_LINES, ROOMS, Room};
use super::{File, Tree, Violation};

pub(super) fn check(tree: &Tree) -> Vec<Violation> {
    let sources = tree.files.iter().filter(|f| f.path.ends_with(".rs"));
    sources.flat_map(|f| source(f, tree.is_test(f))).collect()
}

fn source(file: &File, testing: bool) -> Vec<Violation> {
    let text = file.text.as_deref().unwrap_or("");
    let syntax = match syn::parse_file(text) {
        Ok(syntax) => syntax,
        Err(e) => return vec![file.breaks(e.span().start().line, format!("not Rust: {e}"))],
    };
    let mut reader = Reader { file, text, table: is_table(text), testing, found: Vec::new() };
    reader.openings();
    reader.lengths();
    reader.visit_file(&syntax);
    match text.parse() {
        Ok(tokens) => reader.unsafety(tokens),
        Err(e) => reader.breaks(0, format!("not Rust: {e}")),
    }
    reader.found
}

/// Is it marked as a table of uniform entries?
fn is_table(text: &str) -> bool {
    let header = text.lines().take_while(|l| l.starts_with("//"));
    header.filter(|l| l.trim_end() == "// tidy: table").count() == 1
}

struct Reader<'a> {
    file: &'a File,
    text: &'a str,
    table: bool,
    testing: bool,
    found: Vec<Violation>,
}

impl Reader<'_> {
    fn breaks(&mut self, line: usize, says: impl Into<String>) {
        self.found.push(self.file.breaks(line, says));
    }

    fn room(&self) -> Option<(&'static Room, &str)> {
        let room = ROOMS.iter().find(|r| Some(r.path) == self.file.room())?;
        Some((room, self.file.path[room.path.len()..].trim_start_matches('/')))
    }

    fn openings(&mut self) {
        if !self.text.starts_with("//! ") {
            self.breaks(1, "a file opens with `//! ` and what it is for");
        }
        let Some((room, path)) = self.room() else { return };
        let is_root = matches!(path, "src/lib.rs" | "src/main.rs");
        let lint =
            if room.unsafe_in.is_empty() { "#![forbid(unsafe_code)]" } else { "#![deny(unsafe_code)]" };
        if is_root && !self.text.lines().any(|line| line == lint) {
            self.breaks(1, format!("the root of this crate carries {lint}"));
        }
    }

    fn lengths(&mut self) {
        let lines = self.text.lines().count();
        let name = self.file.path.strip_prefix(ARCHITECTURES).filter(|n| *n != "mod.rs" && !n.contains('/'));
        let limit = if name.is_some() { ARCHITECTURE_LINES } else { FILE_LINES };
        if lines > limit && !self.table {
            self.breaks(lines, format!("{lines} lines in this file, at most {limit}: split it by its ideas"));
        }
    }

    fn function(&mut self, name: &syn::Ident, start: usize, body: &Block) {
        let mut lines = body.brace_token.span.close().end().line + 1 - start;
        if self.table {
            let mut tables = TableLines(0);
            tables.visit_block(body);
            lines -= tables.0;
        }
        if lines > FUNCTION_LINES {
            let says = format!("{lines} lines in `{name}`, at most {FUNCTION_LINES}: give its parts names");
            self.breaks(start, says);
        }
    }

    /// Runs `read` as test code, if these attributes say that it is.
    fn inside(&mut self, attrs: &[Attribute], read: impl FnOnce(&mut Self)) {
        let outer = self.testing;
        self.testing |= attrs.iter().any(is_test_attribute);
        read(self);
        self.testing = outer;
    }

    /// Method calls hidden in a macro's arguments, and macros in those.
    fn macro_tokens(&mut self, tokens: TokenStream) {
        let tokens: Vec<TokenTree> = tokens.into_iter().collect();
        for (i, token) in tokens.iter().enumerate() {
            match token {
                TokenTree::Group(g) => self.macro_tokens(g.stream()),
                TokenTree::Ident(name) if i > 0 && is(&tokens[i - 1], '.') && name == "unwrap" => {
                    self.unwrapped(name.span().start().line);
                }
                TokenTree::Ident(name) if tokens.get(i + 1).is_some_and(|t| is(t, '!')) => {
                    self.macro_name(&name.to_string(), name.span().start().line);
                }
                _ => {}
            }
        }
    }

    fn unwrapped(&mut self, line: usize) {
        if !self.testing {
            self.breaks(line, "`unwrap` outside of tests: return an error, or `expect` with the reason");
        }
    }

    fn macro_name(&mut self, name: &str, line: usize) {
        if matches!(name, "todo" | "unimplemented" | "dbg") {
            self.breaks(line, format!("`{name}!`: finish it"));
        }
    }

    fn features(&mut self, tokens: TokenStream) {
        for token in tokens {
            match token {
                TokenTree::Group(g) => self.features(g.stream()),
                TokenTree::Ident(i) if i == "feature" => {
                    self.breaks(
                        i.span().start().line,
                        "`cfg(feature`: there is one build; choose at run time",
                    );
                }
                _ => {}
            }
        }
    }

    /// Where `unsafe` may be, and that each block and impl has its reason.
    fn unsafety(&mut self, tokens: TokenStream) {
        let allowed = self.room().is_some_and(|(room, path)| room.unsafe_in.contains(&path));
        let mut tokens = tokens.into_iter().peekable();
        while let Some(token) = tokens.next() {
            match token {
                TokenTree::Group(g) => self.unsafety(g.stream()),
                TokenTree::Ident(i) if i == "unsafe" => {
                    let line = i.span().start().line;
                    let needs_reason = match tokens.peek() {
                        Some(TokenTree::Group(_)) => true,
                        Some(TokenTree::Ident(next)) => next == "impl",
                        _ => false,
                    };
                    if !allowed {
                        self.breaks(line, "`unsafe` in a file that the plan does not allow it in");
                    } else if needs_reason && !has_reason(self.text, line) {
                        self.breaks(line, "`unsafe` without a `// SAFETY:` comment above");
                    }
                }
                _ => {}
            }
        }
    }
}

impl<'ast> Visit<'ast> for Reader<'_> {
    fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
        self.inside(&item.attrs, |r| visit::visit_item_mod(r, item));
    }

    fn visit_item_fn(&mut self, item: &'ast syn::ItemFn) {
        self.function(&item.sig.ident, item.sig.span().start().line, &item.block);
        self.inside(&item.attrs, |r| visit::visit_item_fn(r, item));
    }

    fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
        self.function(&item.sig.ident, item.sig.span().start().line, &item.block);
        self.inside(&item.attrs, |r| visit::visit_impl_item_fn(r, item));
    }

    fn visit_item_impl(&mut self, item: &'ast syn::ItemImpl) {
        self.inside(&item.attrs, |r| visit::visit_item_impl(r, item));
    }

    fn visit_trait_item_fn(&mut self, item: &'ast syn::TraitItemFn) {
        if let Some(body) = &item.default {
            self.function(&item.sig.ident, item.sig.span().start().line, body);
        }
        visit::visit_trait_item_fn(self, item);
    }

    fn visit_expr_method_call(&mut self, call: &'ast syn::ExprMethodCall) {
        if call.method == "unwrap" {
            self.unwrapped(call.method.span().start().line);
        }
        visit::visit_expr_method_call(self, call);
    }

    fn visit_macro(&mut self, call: &'ast syn::Macro) {
        if let Some(last) = call.path.segments.last() {
            self.macro_name(&last.ident.to_string(), last.ident.span().start().line);
            if last.ident == "cfg" {
                self.features(call.tokens.clone());
            }
        }
        self.macro_tokens(call.tokens.clone());
        visit::visit_macro(self, call);
    }

    fn visit_attribute(&mut self, attribute: &'ast Attribute) {
        if let Meta::List(list) = &attribute.meta
            && (list.path.is_ident("cfg") || list.path.is_ident("cfg_attr"))
        {
            self.features(list.tokens.clone());
        }
    }
}

fn is(token: &TokenTree, punct: char) -> bool {
    matches!(token, TokenTree::Punct(p) if p.as_char() == punct)
}

/// `#[test]` or `#[cfg(test)]`.
fn is_test_attribute(attribute: &Attribute) -> bool {
    match &attribute.meta {
        Meta::Path(path) => path.is_ident("test"),
        Meta::List(list) => list.path.is_ident("cfg") && list.tokens.to_string() == "test",
        Meta::NameValue(_) => false,
    }
}

/// Counts lines of array literals and of `match`es whose every arm is an expression without a block: entries, no logic.
struct TableLines(usize);

impl TableLines {
    fn count(&mut self, span: proc_macro2::Span) {
        self.0 += span.end().line - span.start().line;
    }
}

impl<'ast> Visit<'ast> for TableLines {
    fn visit_expr_array(&mut self, array: &'ast syn::ExprArray) {
        self.count(array.span());
    }

    fn visit_expr_match(&mut self, choice: &'ast syn::ExprMatch) {
        if choice.arms.iter().any(|arm| matches!(*arm.body, Expr::Block(_))) {
            visit::visit_expr_match(self, choice);
        } else {
            self.count(choice.span());
        }
    }

    fn visit_macro(&mut self, call: &'ast syn::Macro) {
        if call.path.is_ident("vec") {
            self.count(call.span());
        }
    }
}

/// Is there a `SAFETY:` comment on this line, or above the statement that holds it?
fn has_reason(text: &str, line: usize) -> bool {
    let lines: Vec<&str> = text.lines().map(str::trim).collect();
    if lines[line - 1].contains("// SAFETY:") {
        return true;
    }
    for above in lines[..line - 1].iter().rev() {
        if above.starts_with("//") {
            if above.contains("SAFETY:") {
                return true;
            }
        } else if above.is_empty() || above.ends_with([';', '{', '}']) {
            return false;
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::super::tests::{expect, tree};
    use super::*;

    /// Checks a file of `crates/cpu` with this after its header (so the first line is line 2).
    fn found(path: &str, body: &str) -> Vec<Violation> {
        check(&tree(&[(path, &format!("//! For a test.\n{body}"))]))
    }

    fn function(lines: usize) -> String {
        format!("fn long() {{\n{}}}\n", "    work();\n".repeat(lines - 2))
    }

    #[test]
    fn what_must_not_be_written() {
        let rows = [
            ("fn f() { g().unwrap(); }", 2, "`unwrap` outside"),
            ("fn f() {\n    println!(\"{}\", g().unwrap());\n}", 3, "`unwrap` outside"),
            ("#[cfg(test)]\nmod tests { fn f() { g().unwrap(); } }", 0, ""),
            ("#[test]\nfn f() { g().unwrap(); }", 0, ""),
            ("#[cfg(not(test))]\nfn f() { g().unwrap(); }", 3, "`unwrap` outside"),
            ("fn f() { g().unwrap_or(1); }", 0, ""),
            ("fn f() { todo!() }", 2, "`todo!`"),
            ("fn f() { std::dbg!(1); }", 2, "`dbg!`"),
            ("fn f() { format!(\"{}\", dbg!(1)); }", 2, "`dbg!`"),
            ("#[cfg(test)]\nmod tests { fn f() { unimplemented!() } }", 3, "`unimplemented!`"),
            ("#[cfg(feature = \"cuda\")]\nfn f() {}", 2, "`cfg(feature`"),
            ("#[cfg(all(unix, not(feature = \"x\")))]\nfn f() {}", 2, "`cfg(feature`"),
            ("fn f() -> bool { cfg!(feature = \"x\") }", 2, "`cfg(feature`"),
            ("#[cfg(target_arch = \"x86_64\")]\nfn f() {}", 0, ""),
            ("fn f( {", 2, "not Rust"),
        ];
        for (body, line, says) in rows {
            expect(&found("crates/cpu/src/a.rs", body), line, says);
        }
        expect(&found("crates/cpu/tests/a.rs", "fn f() { g().unwrap(); }"), 0, "");
        let shared = ("crates/cpu/src/ops/shared.rs", "//! For tests.\nfn f() { g().unwrap(); }");
        let parent = |text| check(&tree(&[shared, ("crates/cpu/src/ops/mod.rs", text)]));
        expect(&parent("//! Ops.\n#[cfg(test)]\npub(crate) mod shared;"), 0, "");
        expect(&parent("//! Ops.\npub(crate) mod shared;"), 2, "`unwrap` outside");
    }

    #[test]
    fn unsafe_needs_a_place_and_a_reason() {
        let rows = [
            ("crates/cpu/src/a.rs", "fn f() { unsafe { g() } }", 2, "does not allow"),
            ("crates/cpu/src/a.rs", "macro_rules! m { () => { unsafe { g() } } }", 2, "does not allow"),
            ("crates/cpu/src/dot.rs", "fn f() {\n    unsafe { g() }\n}", 3, "without a"),
            (
                "crates/cpu/src/dot.rs",
                "fn f() {\n    // SAFETY: it is.\n    let x =\n        unsafe { g() };\n}",
                0,
                "",
            ),
            ("crates/cpu/src/dot.rs", "// SAFETY: far away\n\nunsafe impl Send for X {}", 4, "without a"),
            ("crates/cpu/src/dot.rs", "// SAFETY: no pointers.\nunsafe impl Send for X {}", 0, ""),
            ("crates/cpu/src/dot.rs", "unsafe fn f() {}", 0, ""),
            ("crates/engine/src/lib.rs", "fn f() {}", 1, "carries #![forbid"),
            ("crates/cpu/src/lib.rs", "fn f() {}", 1, "carries #![deny"),
            ("crates/engine/src/lib.rs", "#![forbid(unsafe_code)]\n", 0, ""),
        ];
        for (path, body, line, says) in rows {
            expect(&found(path, body), line, says);
        }
    }

    #[test]
    fn lengths_have_limits() {
        let cpu = "crates/cpu/src/a.rs";
        expect(&found(cpu, &function(FUNCTION_LINES)), 0, "");
        expect(&found(cpu, &function(FUNCTION_LINES + 1)), 2, "71 lines in `long`");
        expect(&found(cpu, &format!("impl X {{\n{}}}", function(71))), 3, "71 lines in `long`");
        expect(
            &found(cpu, &format!("#[cfg(test)]\nmod tests {{\n{}}}", function(71))),
            4,
            "71 lines in `long`",
        );
        let entries = "const A: u8 = 0;\n";
        expect(&found(cpu, &entries.repeat(FILE_LINES)), FILE_LINES + 1, "lines in this file");
        expect(&found(cpu, &format!("// tidy: table\n{}", entries.repeat(FILE_LINES))), 0, "");
        let arch = "crates/model/src/arch/a.rs";
        expect(&found(arch, &entries.repeat(ARCHITECTURE_LINES - 1)), 0, "");
        expect(&found(arch, &entries.repeat(ARCHITECTURE_LINES)), ARCHITECTURE_LINES + 1, "at most 60");
    }

    #[test]
    fn a_table_may_be_long_but_hold_no_logic() {
        let literal =
            format!("// tidy: table\nfn long() -> [u8; 80] {{\n[\n{}]\n}}\n", "    1,\n".repeat(80));
        expect(&found("crates/cpu/src/a.rs", &literal), 0, "");
        expect(&found("crates/cpu/src/a.rs", &literal.replace("tidy:", "untidy:")), 3, "84 lines in `long`");
        expect(
            &found(
                "crates/cpu/tests/a.rs",
                &literal.replace("[\n", "vec![\n").replace("[u8; 80]", "Vec<u8>"),
            ),
            0,
            "",
        );
        let arms =
            format!("// tidy: table\nfn long() -> u8 {{\nmatch x {{\n{}}}\n}}\n", "    1 => 2,\n".repeat(80));
        expect(&found("crates/cpu/src/a.rs", &arms), 0, "");
        expect(
            &found("crates/cpu/src/a.rs", &arms.replace("1 => 2,", "1 => { 2 }")),
            3,
            "84 lines in `long`",
        );
        expect(&found("crates/cpu/src/a.rs", &format!("// tidy: table\n{}", function(71))), 3, "71 lines");
    }

    #[test]
    fn a_file_says_what_it_is_for() {
        expect(&check(&tree(&[("crates/cpu/tests/a.rs", "fn f() {}")])), 1, "opens with");
    }
}
