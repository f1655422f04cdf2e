//! Runs every model of a folder in tract: run_tract FOLDER [NAME...]. ../cases.py says what is read and written.
use std::fs;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::path::{Path, PathBuf};
use tract_onnx::prelude::*;
use tract_onnx::tract_core::internal::{bail, format_err};

fn datum(name: &str) -> TractResult<DatumType> {
    Ok(match name {
        "float16" => DatumType::F16,
        "float32" => DatumType::F32,
        "float64" => DatumType::F64,
        "int8" => DatumType::I8,
        "int16" => DatumType::I16,
        "int32" => DatumType::I32,
        "int64" => DatumType::I64,
        "uint8" => DatumType::U8,
        "uint16" => DatumType::U16,
        "uint32" => DatumType::U32,
        "uint64" => DatumType::U64,
        "bool" => DatumType::Bool,
        _ => bail!("no type {name}"),
    })
}

fn name_of(datum: DatumType) -> &'static str {
    match datum.unquantized() {
        DatumType::F16 => "float16",
        DatumType::F32 => "float32",
        DatumType::F64 => "float64",
        DatumType::I8 => "int8",
        DatumType::I16 => "int16",
        DatumType::I32 => "int32",
        DatumType::U8 => "uint8",
        DatumType::U16 => "uint16",
        DatumType::U32 => "uint32",
        DatumType::U64 => "uint64",
        DatumType::Bool => "bool",
        _ => "int64",
    }
}

fn with(base: &Path, extension: &str) -> PathBuf {
    PathBuf::from(format!("{}.{extension}", base.display()))
}

fn inputs(base: &Path) -> TractResult<Vec<(String, Tensor)>> {
    let bytes = fs::read(with(base, "bin"))?;
    let mut tensors = vec![];
    for line in fs::read_to_string(with(base, "case"))?.lines() {
        let words: Vec<&str> = line.split(' ').collect();
        if words[0] != "input" {
            continue;
        }
        let shape: Vec<usize> = match words[3] {
            "-" => vec![],
            sizes => sizes.split(',').map(|size| size.parse()).collect::<Result<_, _>>()?,
        };
        let kind = datum(words[2])?;
        let start: usize = words[4].parse()?;
        let length = shape.iter().product::<usize>() * kind.size_of();
        let tensor = unsafe { Tensor::from_raw_dt(kind, &shape, &bytes[start..start + length])? };
        tensors.push((words[1].to_string(), tensor));
    }
    Ok(tensors)
}

fn run(base: &Path) -> TractResult<()> {
    let given = inputs(base)?;
    let reader = tract_onnx::onnx().with_ignore_output_shapes(true).with_ignore_value_info(true);
    let mut model = reader.model_for_path(with(base, "onnx"))?;
    for (index, outlet) in model.input_outlets()?.to_vec().iter().enumerate() {
        let name = model.node(outlet.node).name.clone();
        let tensor = &given.iter().find(|(other, _)| *other == name).ok_or_else(|| format_err!("no input {name}"))?.1;
        model.set_input_fact(index, InferenceFact::dt_shape(tensor.datum_type(), tensor.shape()))?;
    }
    let outlets = model.input_outlets()?.to_vec();
    let names: Vec<String> = outlets.iter().map(|outlet| model.node(outlet.node).name.clone()).collect();
    let plan = model.into_optimized()?.into_runnable()?;
    let mut fed = tvec![];
    for name in names {
        fed.push(given.iter().find(|(other, _)| *other == name).unwrap().1.clone().into_tvalue());
    }
    let results = plan.run(fed)?;
    let (mut table, mut bytes) = (String::new(), vec![]);
    for (index, value) in results.iter().enumerate() {
        let tensor = match value.datum_type() {
            DatumType::TDim => value.cast_to_dt(DatumType::I64)?.into_owned(),
            _ => (**value).clone(),
        };
        let sizes: Vec<String> = tensor.shape().iter().map(|size| size.to_string()).collect();
        let shape = if sizes.is_empty() { "-".to_string() } else { sizes.join(",") };
        table += &format!("output {index} {} {shape} {}\n", name_of(tensor.datum_type()), bytes.len());
        bytes.extend_from_slice(tensor.as_bytes());
    }
    fs::write(with(base, "got"), table)?;
    fs::write(with(base, "got.bin"), bytes)?;
    Ok(())
}

fn main() {
    let mut words = std::env::args().skip(1);
    let folder = PathBuf::from(words.next().expect("a folder"));
    let mut names: Vec<String> = words.collect();
    if names.is_empty() {
        for entry in fs::read_dir(&folder).expect("the folder").flatten() {
            let name = entry.file_name().into_string().unwrap_or_default();
            names.extend(name.strip_suffix(".case").map(str::to_string));
        }
    }
    names.sort();
    for name in names {
        let base = folder.join(&name);
        let message = match catch_unwind(AssertUnwindSafe(|| run(&base))) {
            Ok(Ok(())) => continue,
            Ok(Err(error)) => format!("{error:?}"),
            Err(_) => "panicked".to_string(),
        };
        fs::write(with(&base, "error"), message).expect("the error is written");
    }
}
