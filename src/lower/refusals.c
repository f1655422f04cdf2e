/* Primitives that no model can hold, each with the reason: what acts on the world outside is dropped with a warning
 * when nothing depends on it, and refused when something does. */
#include "lower/lower.h"

#define CALLBACK \
  "it calls back into Python, which is not there when the model runs; compute it before or after the model"
#define EXCHANGE "it exchanges data between devices, and a model runs on one"
#define TOKEN "tokens order effects on the world outside, and a model has none"
#define CUDNN "it is a cuDNN kernel; export the function with JAX's own implementation instead"
#define SPARSE \
  "it is a kernel for one sparse format; use jax.experimental.sparse.BCOO, which is made of plain primitives"
#define FOREIGN "it is foreign compiled code, which ONNX cannot hold"
#define REFERENCE "it changes memory in place, and an ONNX value never changes"
#define DERIVATIVE "it stands for a derivative that JAX has not computed yet; export the finished derivative"
#define FORWARD \
  "it is the forward derivative of a custom_vjp function, which JAX has none of; use reverse mode or custom_jvp"

/* The scan before lowering finds refused primitives first: only bodies that it skips lead here. */
static void lower_refused(Lowering *l) { unsupported(l, "%s", l->plugin->reason); }

static void lower_dropped(Lowering *l) {
  if (l->equation->output_count) unsupported(l, "its results would be missing: %s", l->plugin->reason);
  notice(l, l->plugin->reason);
}

/* Checks and markers that JAX has made use of by now. */
static void lower_nothing(Lowering *l) {
  if (l->equation->output_count) unsupported(l, "it gives results where none are expected");
}

/* clang-format off */
const Plugin refusal_plugins[] = {
    PLUGIN("debug_callback", lower_dropped, .reason = "it only shows values while JAX runs", .flags = DROPPED),
    PLUGIN("debug_print", lower_dropped, .reason = "it only prints values while JAX runs", .flags = DROPPED),
    PLUGIN("inspect_sharding", lower_dropped, .reason = "it only shows where an array lies, and a model runs on one device", .flags = DROPPED),
    PLUGIN("shape_assertion", lower_nothing),
    PLUGIN("dce_sink", lower_nothing),
    PLUGIN("pure_callback", lower_refused, .reason = CALLBACK, .flags = REFUSED),
    PLUGIN("io_callback", lower_refused, .reason = CALLBACK, .flags = REFUSED),
    PLUGIN("outside_call", lower_refused, .reason = CALLBACK, .flags = REFUSED),
    PLUGIN("ffi_call", lower_refused, .reason = FOREIGN, .flags = REFUSED),
    PLUGIN("custom_partitioning", lower_refused, .reason = FOREIGN, .flags = REFUSED),
    PLUGIN("pallas_call", lower_refused, .reason = "it is a kernel for one kind of device, which ONNX cannot hold", .flags = REFUSED),
    PLUGIN("tpu_custom_call", lower_refused, .reason = "it is a kernel for one kind of device, which ONNX cannot hold", .flags = REFUSED),
    PLUGIN("cudnn_fusion", lower_refused, .reason = CUDNN, .flags = REFUSED),
    PLUGIN("dot_product_attention_fwd", lower_refused, .reason = CUDNN, .flags = REFUSED),
    PLUGIN("dot_product_attention_bwd", lower_refused, .reason = CUDNN, .flags = REFUSED),
    PLUGIN("dot_product_attention_fwd_wrapper", lower_refused, .reason = CUDNN, .flags = REFUSED),
    PLUGIN("dot_product_attention_bwd_wrapper", lower_refused, .reason = CUDNN, .flags = REFUSED),
    PLUGIN("dot_product_attention_fp8_fwd", lower_refused, .reason = CUDNN, .flags = REFUSED),
    PLUGIN("dot_product_attention_fp8_bwd", lower_refused, .reason = CUDNN, .flags = REFUSED),
    PLUGIN("dot_product_attention_fp8_fwd_wrapper", lower_refused, .reason = CUDNN, .flags = REFUSED),
    PLUGIN("dot_product_attention_fp8_bwd_wrapper", lower_refused, .reason = CUDNN, .flags = REFUSED),
    PLUGIN("scaled_matmul", lower_refused, .reason = CUDNN, .flags = REFUSED),
    PLUGIN("scaled_matmul_wrapper", lower_refused, .reason = CUDNN, .flags = REFUSED),
    PLUGIN("core_map", lower_refused, .reason = "it is a kernel for one kind of device, which ONNX cannot hold", .flags = REFUSED),
    PLUGIN("check", lower_refused, .reason = "it raises an error at run time; make it a result with checkify.checkify", .flags = REFUSED),
    PLUGIN("coo_spmv", lower_refused, .reason = SPARSE, .flags = REFUSED),
    PLUGIN("coo_spmm", lower_refused, .reason = SPARSE, .flags = REFUSED),
    PLUGIN("csr_spmv", lower_refused, .reason = SPARSE, .flags = REFUSED),
    PLUGIN("csr_spmm", lower_refused, .reason = SPARSE, .flags = REFUSED),
    PLUGIN("spsolve", lower_refused, .reason = "it calls a library's sparse solver, which ONNX cannot hold", .flags = REFUSED),
    PLUGIN("psend", lower_refused, .reason = EXCHANGE, .flags = REFUSED),
    PLUGIN("precv", lower_refused, .reason = EXCHANGE, .flags = REFUSED),
    PLUGIN("ragged_all_to_all", lower_refused, .reason = EXCHANGE, .flags = REFUSED),
    PLUGIN("pbroadcast_dynamic", lower_refused, .reason = EXCHANGE, .flags = REFUSED),
    PLUGIN("all_gather_start", lower_refused, .reason = EXCHANGE, .flags = REFUSED),
    PLUGIN("all_gather_done", lower_refused, .reason = EXCHANGE, .flags = REFUSED),
    PLUGIN("all_gather_reduced_start", lower_refused, .reason = EXCHANGE, .flags = REFUSED),
    PLUGIN("all_to_all_start", lower_refused, .reason = EXCHANGE, .flags = REFUSED),
    PLUGIN("all_to_all_done", lower_refused, .reason = EXCHANGE, .flags = REFUSED),
    PLUGIN("pbroadcast_start", lower_refused, .reason = EXCHANGE, .flags = REFUSED),
    PLUGIN("pbroadcast_done", lower_refused, .reason = EXCHANGE, .flags = REFUSED),
    PLUGIN("ppermute_start", lower_refused, .reason = EXCHANGE, .flags = REFUSED),
    PLUGIN("ppermute_done", lower_refused, .reason = EXCHANGE, .flags = REFUSED),
    PLUGIN("psum_start", lower_refused, .reason = EXCHANGE, .flags = REFUSED),
    PLUGIN("psum_invariant_start", lower_refused, .reason = EXCHANGE, .flags = REFUSED),
    PLUGIN("psum_done", lower_refused, .reason = EXCHANGE, .flags = REFUSED),
    PLUGIN("reduce_scatter_start", lower_refused, .reason = EXCHANGE, .flags = REFUSED),
    PLUGIN("reduce_scatter_done", lower_refused, .reason = EXCHANGE, .flags = REFUSED),
    PLUGIN("unreduced_psum_start", lower_refused, .reason = EXCHANGE, .flags = REFUSED),
    PLUGIN("unreduced_reduce_scatter_start", lower_refused, .reason = EXCHANGE, .flags = REFUSED),
    PLUGIN("ag_start", lower_refused, .reason = EXCHANGE, .flags = REFUSED),
    PLUGIN("ag_done", lower_refused, .reason = EXCHANGE, .flags = REFUSED),
    PLUGIN("full_to_shard", lower_refused, .reason = EXCHANGE, .flags = REFUSED),
    PLUGIN("shard_to_full", lower_refused, .reason = EXCHANGE, .flags = REFUSED),
    PLUGIN("xla_pmap", lower_refused, .reason = "it maps over devices, and a model runs on one; use jax.vmap", .flags = REFUSED),
    PLUGIN("infeed", lower_refused, .reason = EXCHANGE, .flags = REFUSED),
    PLUGIN("outfeed", lower_refused, .reason = EXCHANGE, .flags = REFUSED),
    PLUGIN("create_token", lower_refused, .reason = TOKEN, .flags = REFUSED),
    PLUGIN("after_all", lower_refused, .reason = TOKEN, .flags = REFUSED),
    PLUGIN("run_state", lower_refused, .reason = REFERENCE, .flags = REFUSED),
    PLUGIN("custom_lin", lower_refused, .reason = FORWARD, .flags = REFUSED),
    PLUGIN("create_linear", lower_refused, .reason = DERIVATIVE, .flags = REFUSED),
    PLUGIN("to_edtype", lower_refused, .reason = "ONNX has no element types of JAX's own kinds", .flags = REFUSED),
    PLUGIN("from_edtype", lower_refused, .reason = "ONNX has no element types of JAX's own kinds", .flags = REFUSED),
    PLUGIN("unreachable", lower_refused, .reason = "JAX marks this place as never to be reached", .flags = REFUSED),
    {0},
};
/* clang-format on */
