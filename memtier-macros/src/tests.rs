//! What an author is told: each mistake once, all mistakes at once, and the item is still there.

use proc_macro2::{TokenStream, TokenTree};
use syn::{DeriveInput, Item, LitStr};

use crate::{expand, handoff};

/// The messages in an expansion, and the names that it declares.
struct Seen {
    messages: Vec<String>,
    declared: Vec<String>,
}

/// Both stages, as the compiler would run them (without `cfg`).
fn expanded(attribute: &str, args: &str, item: &str) -> Seen {
    let all = seen_tokens(attribute, args, item);
    Seen { messages: messages(all.clone()), declared: declared(all) }
}

fn seen_tokens(attribute: &str, args: &str, item: &str) -> TokenStream {
    let (args, item) = (args.parse().unwrap(), item.parse().unwrap());
    let first = match attribute {
        "tier" => handoff::storage(args, item),
        _ => handoff::bundle(args, item),
    };
    let mut all = first.clone();
    for item in syn::parse2::<syn::File>(first).map(|file| file.items).unwrap_or_default() {
        if let Item::Struct(mut found) = item {
            let derives = found.attrs.iter().position(|attr| attr.path().is_ident("derive"));
            let Some(derive) = derives.map(|index| found.attrs.remove(index)) else { continue };
            let derive = quote::ToTokens::to_token_stream(&derive).to_string();
            let input: DeriveInput = syn::parse_quote!(#found);
            let input = quote::ToTokens::to_token_stream(&input);
            match () {
                () if derive.contains("__MtStorage") => all.extend(expand::storage(input)),
                () if derive.contains("__MtBundle") => all.extend(expand::bundle(input)),
                () => {}
            }
        }
    }
    all
}

fn messages(tokens: TokenStream) -> Vec<String> {
    let mut found = Vec::new();
    let mut error = false;
    for tree in tokens {
        match tree {
            TokenTree::Ident(ident) => error = ident == "compile_error",
            TokenTree::Group(group) if error => {
                found.extend(syn::parse2::<LitStr>(group.stream()).map(|text| text.value()));
                error = false;
            }
            TokenTree::Group(group) => found.extend(messages(group.stream())),
            _ => {}
        }
    }
    found
}

fn declared(tokens: TokenStream) -> Vec<String> {
    let items = syn::parse2::<syn::File>(tokens).map(|file| file.items).unwrap_or_default();
    let names = items.into_iter().filter_map(|item| match item {
        Item::Struct(found) => Some(found.ident.to_string()),
        Item::Enum(found) => Some(found.ident.to_string()),
        Item::Fn(found) => Some(found.sig.ident.to_string()),
        _ => None,
    });
    names.collect()
}

/// The messages for a `#[tier(ModelResident, dims = Dims)]` struct with these fields.
fn fields(fields: &str) -> Vec<String> {
    let seen = expanded("tier", "ModelResident, dims = Dims", &format!("pub struct W {{ {fields} }}"));
    assert_eq!(seen.declared, ["W", "WRef", "WMut"], "the item and its views are there whatever is wrong");
    seen.messages
}

/// The messages for these arguments of `#[tier(..)]`.
fn args(args: &str) -> Vec<String> {
    let seen = expanded("tier", args, "pub struct W { #[shape(hidden)] pub x: f32 }");
    assert_eq!(seen.declared, ["W", "WRef", "WMut"], "the item and its views are there whatever is wrong");
    seen.messages
}

/// One message, with these words in it.
#[track_caller]
fn one(messages: &[String], words: &[&str]) {
    assert_eq!(messages.len(), 1, "{messages:#?}");
    for word in words {
        assert!(messages[0].contains(word), "`{word}` is not in: {}", messages[0]);
    }
}

#[test]
fn what_is_right_is_silent() {
    assert!(args("ModelResident, dims = Dims").is_empty());
    assert!(args("EnginePersistent, dims = model::Dims<4>, space = Cuda, crate = ::mt,").is_empty());
    assert!(args("memtier::ModelResident, dims = ()").is_empty());
    let all = "
        #[shape(hidden, heads * 2, align = 256)] pub a: f32,
        #[shape(hidden)] #[align(256)] #[when(vision)] b: bf16,
        #[shape(rows, format = up)] pub(crate) c: Packed<F>,
        pub norm: Norm,
        #[dims(layer(index))] pub layers: [Layer<f32>; layers],
        #[serde(skip)] #[when(vision)] #[dims(vision_dims)] pub tower: crate::Tower,";
    assert!(fields(all).is_empty(), "{:#?}", fields(all));
}

#[test]
fn a_misspelled_name_is_guessed() {
    one(&args("ModelResidnt, dims = Dims"), &["`ModelResidnt`; did you mean `ModelResident`?", "`EnginePersistent`"]);
    one(&args("ModelResident, dmis = Dims, dims = Dims"), &["no option `dmis`; did you mean `dims`?"]);
    one(&fields("#[shpae(hidden)] x: f32"), &["`shpae`; did you mean `shape`?"]);
    one(&fields("#[shape(hidden)] #[fromat(f)] x: Packed<F>"), &["`fromat`; did you mean `format`?"]);
    one(&fields("#[shape(hidden, algin = 4)] x: f32"), &["no option `algin`; did you mean `align`?"]);
}

#[test]
fn a_wrong_form_is_named_as_such() {
    one(&args("\"ModelResident\", dims = Dims"), &["not a string: write `ModelResident`"]);
    one(&args("ModelResident, dims = \"model::Dims\""), &["a type, not a string: write `dims = model::Dims`"]);
    one(&args("ModelResident, dims(Dims)"), &["`dims` takes a value: write `dims = ..`"]);
    one(&args("ModelResident, dims = Dims, crate = \"mt\""), &["a path, not a string: write `crate = mt`"]);
    one(&args("ModelResident<Cuda>, dims = Dims"), &["the space is an option: write `ModelResident, space = ..`"]);
    one(&args("tier = ModelResident, dims = Dims"), &["the tier stands alone"]);
    one(
        &fields("#[shape(hidden, align = \"256\")] x: f32"),
        &["`align` takes an expression, not a string", "`#[align(256)]`"],
    );
    one(&fields("#[shape(\"hidden\")] x: f32"), &["a dimension is an expression, not a string"]);
    one(&fields("#[shape(hidden, align(256))] x: f32"), &["options of `shape` are written `align = ..`"]);
    one(&fields("#[shape = 3] x: f32"), &["`shape` is written `#[shape(rows, columns)]`"]);
    one(&fields("#[shape] x: f32"), &["`shape` is written `#[shape(rows, columns)]`"]);
    one(&fields("#[shape(hidden)] #[when] x: f32"), &["`when` is written `#[when(condition)]`"]);
}

#[test]
fn a_crate_that_is_a_string_is_where_the_report_comes_from() {
    let item: TokenStream = "pub struct W { pub x: Inner }".parse().unwrap();
    for (args, expand) in [
        ("ModelResident, dims = Dims, crate = \"own::mt\"", handoff::storage as fn(_, _) -> TokenStream),
        ("crate = \"own::mt\"", handoff::bundle),
    ] {
        let first = expand(args.parse().unwrap(), item.clone()).to_string();
        assert!(first.contains("derive (own :: mt :: __private") && !first.contains(":: memtier"), "{first}");
    }
}

#[test]
fn twice_is_once_too_often() {
    one(&args("ModelResident, EnginePersistent, dims = Dims"), &["the tier is given twice"]);
    one(&args("ModelResident, dims = Dims, dims = Other"), &["`dims` is given twice"]);
    one(&fields("#[shape(a)] #[shape(b)] x: f32"), &["the shape is given twice"]);
    one(&fields("#[shape(a, align = 4)] #[align(4)] x: f32"), &["`align` is given twice"]);
    let again = "#[tier(EnginePersistent, dims = Dims)] pub struct W { #[shape(a)] x: f32 }";
    one(&expanded("tier", "ModelResident, dims = Dims", again).messages, &["`#[tier]` is given twice"]);
    let both = "#[memtier::tier(ModelResident, dims = Dims)] pub struct W { x: Norm }";
    one(&expanded("graph_captured", "", both).messages, &["a storage (`#[tier(..)]`) or a bundle"]);
}

#[test]
fn what_is_missing_is_said_with_what_to_write() {
    one(&args(""), &["the tier is missing", "#[tier(ModelResident, dims = Dims)]", "survives a model swap"]);
    one(&args("ModelResident"), &["`dims` is missing", "`#[tier(.., dims = Dims)]`", "`dims = ()`"]);
    one(&args("ModelResident, dims = "), &["`dims` takes a type: write `dims = Dims`"]);
    one(&fields("x: f32"), &["`x` has no shape", "`f32` is an element", "#[shape(rows, columns)]"]);
    one(&fields("#[shape(hidden)] x: Packed<F>"), &["`Packed<F>` has a format", "#[format(expression)]"]);
    one(&fields("#[shape()] x: f32"), &["at least one dimension"]);
    one(&fields(""), &["a storage without fields"]);
    one(&expanded("graph_captured", "", "struct B {}").messages, &["a bundle without parts"]);
}

#[test]
fn types_that_cannot_be_a_field_are_named_with_what_to_write() {
    one(&fields("x: [f32; hidden]"), &["`f32` is an element, not a storage: write `#[shape(hidden)] x: f32`"]);
    one(&fields("#[shape(hidden)] x: [f32; 4]"), &["with all dimensions in `#[shape(..)]`"]);
    one(&fields("x: Option<Tower<f32>>"), &["`#[when(condition)] x: Tower<f32>`"]);
    one(&fields("x: Vec<Layer>"), &["`x: [Layer; count]`"]);
    one(&fields("x: Box<Layer>"), &["`x: Layer`"]);
    one(&fields("x: &'static f32"), &["`&'static f32` is an address"]);
    one(&fields("x: *mut f32"), &["is an address"]);
    one(&fields("x: [Layer]"), &["the length is missing"]);
    one(&fields("x: (f32, f32)"), &["`(f32, f32)` is neither an element"]);
    one(&fields("#[shape(hidden)] x: bool"), &["`bool` is no element", "like `u8`"]);
    one(&fields("x: usize"), &["`usize` is no element", "like `u64`"]);
    one(&expanded("graph_captured", "", "struct B { x: f32 }").messages, &["`f32` is an element, not a part"]);
}

#[test]
fn attributes_that_do_not_go_together_are_refused() {
    one(&fields("#[align(4)] x: Norm"), &["`align` belongs to the fields of the nested storage"]);
    one(&fields("#[shape(hidden)] #[dims(other)] x: f32"), &["`dims` is for nested storages"]);
    one(&fields("#[shape(hidden)] #[format(f)] x: f32"), &["`f32` has its own size"]);
    one(&fields("#[shape(hidden, align = 3)] x: f32"), &["a power of two and at most 4096 bytes, not 3"]);
    one(&fields("#[shape(hidden)] #[align(8192)] x: f32"), &["not 8192"]);
    one(&fields("#[shape(hidden, 0)] x: f32"), &["a dimension is zero"]);
    one(&fields("#[shape(self.hidden)] x: f32"), &["there is no `self`"]);
    let part = "struct B { #[shape(hidden)] x: Norm }";
    one(&expanded("graph_captured", "", part).messages, &["`shape` says how a storage is laid out"]);
    one(&expanded("graph_captured", "ModelResident", "struct B { x: Norm }").messages, &["takes no tier"]);
}

#[test]
fn tiers_that_are_no_storage_say_where_to_find_them() {
    one(&args("Pooled, dims = Dims"), &["`BlockPool<..>`"]);
    one(&args("ForwardScratch, dims = Dims"), &["`step.scratch.take(..)`"]);
    one(&args("HostStaging, dims = Dims"), &["`load.staging.take(..)`"]);
    one(&args("HostPinned, dims = Dims"), &["`engine.pin(..)`"]);
}

#[test]
fn everything_is_reported_at_once() {
    let item = "pub struct W {
        #[shap(hidden)] a: f32,
        b: f32,
        #[shape(hidden)] #[shape(hidden)] c: f32,
        #[shape(hidden, align = \"256\")] d: f32,
    }";
    let seen = expanded("tier", "ModelResidnt, dims = \"Dims\", spce = Cuda", item);
    let words =
        ["ModelResidnt", "`dims` takes a type", "`spce`", "`shap`", "`b` has no shape", "twice", "not a string"];
    for word in words {
        assert!(seen.messages.iter().any(|message| message.contains(word)), "{word}: {:#?}", seen.messages);
    }
    assert_eq!(seen.messages.len(), words.len(), "{:#?}", seen.messages);
    assert_eq!(seen.declared, ["W", "WRef", "WMut"]);
}

#[test]
fn items_that_are_no_struct_with_fields_are_written_out_again() {
    let refused = |item: &str, words: &[&str]| {
        let seen = expanded("tier", "ModelResident, dims = Dims", item);
        one(&seen.messages, words);
        assert_eq!(seen.declared, ["W"], "the item is still there");
    };
    refused("pub enum W { A }", &["cannot be used on an enum", "write a struct with named fields"]);
    refused("pub struct W(#[shape(a)] f32);", &["a tuple struct", "fields need names"]);
    refused("pub struct W;", &["a unit struct"]);
    refused("fn W() {}", &["this item"]);
    refused("pub struct W<'a> { #[shape(a)] x: &'a f32 }", &["no lifetime here", "`'static`"]);
    let seen = handoff::storage("ModelResident".parse().unwrap(), "struct W(#[shape(a)] f32);".parse().unwrap());
    assert!(!seen.to_string().contains("# [shape"), "without our attributes: {seen}");
}

#[test]
fn a_half_typed_field_does_not_take_the_others_with_it() {
    // The compiler has reported these; an editor wants the item, its views and the names of all fields.
    for half in ["pub y", "pub y:", "pub y: Vec<", "#[shape(", "pub"] {
        let Ok(item) = format!("pub struct W {{ #[shape(a)] pub x: f32, {half} }}").parse::<TokenStream>() else {
            continue;
        };
        let seen = expanded("tier", "ModelResident, dims = Dims", &item.to_string());
        assert_eq!(seen.declared, ["W", "WRef", "WMut"], "{half}");
        assert!(seen.messages.is_empty(), "{half}: {:#?}", seen.messages);
    }
    let two = "pub struct W { #[shape(a), align(4)] pub x: f32, #[shape(a)] pub y: BTreeMap<A, B> }";
    let seen = expanded("tier", "ModelResident, dims = Dims", two);
    one(&seen.messages, &["an attribute says one thing: write `#[shape(.., align = 256)]`"]);
    assert_eq!(seen.declared, ["W", "WRef", "WMut"]);
}

#[test]
fn copies_are_refused_and_other_derives_are_passed_on() {
    let item = "#[derive(Clone, Debug, Copy)] pub struct W { #[shape(a)] x: f32 }";
    let seen = expanded("tier", "ModelResident, dims = Dims", item);
    assert_eq!(seen.messages.len(), 2);
    assert!(seen.messages[0].contains("no `Clone` here") && seen.messages[1].contains("no `Copy` here"));
    let first = handoff::storage("ModelResident, dims = Dims".parse().unwrap(), item.parse().unwrap());
    assert!(first.to_string().contains("derive (Debug)"), "{first}");
}

/// What the bodies of the `unsafe impl`s in an expansion take from `__private`.
fn trusted(tokens: TokenStream) -> Vec<String> {
    struct Bodies(Vec<String>);
    impl syn::visit::Visit<'_> for Bodies {
        fn visit_item_impl(&mut self, found: &syn::ItemImpl) {
            let bodies = found.items.iter().filter_map(|item| match item {
                syn::ImplItem::Fn(function) => Some(quote::ToTokens::to_token_stream(&function.block).to_string()),
                _ => None,
            });
            self.0.extend(bodies.filter(|_| found.unsafety.is_some()));
        }
    }
    let mut bodies = Bodies(Vec::new());
    syn::visit::Visit::visit_file(&mut bodies, &syn::parse2(tokens).unwrap());
    assert!(bodies.0.len() >= 6, "{}", bodies.0.len());
    let names = bodies.0.iter().flat_map(|body| body.split("__private :: ").skip(1));
    let mut names: Vec<_> = names.map(|rest| rest.split(' ').next().unwrap_or_default().to_owned()).collect();
    names.sort_unstable();
    names.dedup();
    names
}

#[test]
fn pools_in_an_array_are_asked_for_their_kind_too() {
    for ty in ["BlockPool<f32>", "Vec<BlockPool<f32>>", "[BlockPool<f32>; 2]"] {
        let seen = expanded("graph_captured", "", &format!("struct B {{ work: W, kv: {ty} }}"));
        let [message] = &seen.messages[..] else { panic!("{ty}: {:?}", seen.messages) };
        assert!(message.contains("`BlockPool<f32>` does not say what its blocks are"), "{message}");
    }
}

#[test]
fn nothing_that_an_unsafe_impl_rests_on_is_named_by_a_path() {
    let of_a_storage = seen_tokens(
        "tier",
        "ModelResident, dims = Dims",
        "struct W {
            #[shape(a * b, 2 * ROWS)] x: f32,
            #[shape(size!(a))] #[format(f)] #[when(a > b)] y: Packed<F>,
            one: Inner, #[when(a > b)] other: Inner,
            #[dims(layer(index))] more: [Inner; layers], #[when(a > b)] most: [Inner; layers],
        }",
    );
    // Numbers; types of nested storages, which have to be storages; patterns that only one type has; and the trait that is implemented.
    let harmless = ["Math", "ModelResident", "Nests", "NestsOther", "Storage", "core", "value"];
    assert_eq!(trusted(of_a_storage), harmless);
    let of_a_bundle = seen_tokens("graph_captured", "", "struct B { work: W, kv: Vec<BlockPool<GlobalKv<f16>>> }");
    assert_eq!(trusted(of_a_bundle), [""; 0]);
}
