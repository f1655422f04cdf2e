/* Primitives that no model can hold, each with the reason: what acts on the world outside is dropped with a warning
 * when nothing depends on it, and refused when something does. */
#include "lower/lower.h"

#define CALLBACK \
  "it calls back into Python, which is not available when the model runs; compute it before or after the model"
#define EXCHANGE "it exchanges data between devices, but a model runs on a single device"
#define COMPILED                                                                                               \
  "it was read from a file, which holds compiled code but no jaxpr, or has symbolic sizes; call the original " \
  "function "                                                                                                  \
  "instead"
#define TOKEN "tokens order side effects, and a model has none"
#define CUDNN "it is a cuDNN kernel; export the function with JAX's own implementation instead"
#define SPARSE \
  "it is a kernel for one sparse format; use jax.experimental.sparse.BCOO, which is built from ordinary primitives"
#define DEVICE "it is a device-specific kernel, which ONNX cannot represent"
#define FOREIGN "it is foreign compiled code, which ONNX cannot represent"
#define DERIVATIVE "it stands for a derivative that JAX has not computed yet; export the finished derivative"
#define ELEMENT_TYPE "ONNX has no equivalent of JAX's extended element types"
#define FORWARD                                                                                                 \
  "it is the forward-mode derivative of a custom_vjp function, which JAX does not define; use reverse mode or " \
  "custom_jvp"

/* The scan before lowering finds refused primitives first: only bodies that it skips lead here. */
static void lower_refused(Lowering *l) { unsupported(l, "%s", l->plugin->reason); }

static void lower_dropped(Lowering *l) {
  if (l->equation->output_count) unsupported(l, "its results would be missing: %s", l->plugin->reason);
  notice(l, l->plugin->reason);
}

/* Checks and markers that JAX has made use of by now. */
static void lower_nothing(Lowering *l) {
  if (l->equation->output_count) unsupported(l, "it has results where none are expected");
}

#define REFUSE(primitive, why) PLUGIN(primitive, lower_refused, .reason = why, .flags = REFUSED)
#define DROP(primitive, why) PLUGIN(primitive, lower_dropped, .reason = why, .flags = DROPPED)

/* clang-format off */
const Plugin refusal_plugins[] = {
    DROP("debug_callback", "it only displays values while JAX runs"),
    DROP("debug_print", "it only prints values while JAX runs"),
    DROP("io_callback", CALLBACK),
    DROP("check", "it raises an error while JAX runs; turn the error into a result with checkify.checkify"),
    DROP("inspect_sharding", "it only displays where an array is placed, and a model runs on a single device"),
    PLUGIN("shape_assertion", lower_nothing),
    PLUGIN("dce_sink", lower_nothing),
    REFUSE("pure_callback", CALLBACK),
    REFUSE("outside_call", CALLBACK),
    REFUSE("call_exported", COMPILED),
    REFUSE("ffi_call", FOREIGN),
    REFUSE("custom_partitioning", FOREIGN),
    REFUSE("pallas_call", DEVICE),
    REFUSE("tpu_custom_call", DEVICE),
    REFUSE("cudnn_fusion", CUDNN),
    REFUSE("dot_product_attention_fwd", CUDNN),
    REFUSE("dot_product_attention_bwd", CUDNN),
    REFUSE("dot_product_attention_fwd_wrapper", CUDNN),
    REFUSE("dot_product_attention_bwd_wrapper", CUDNN),
    REFUSE("dot_product_attention_fp8_fwd", CUDNN),
    REFUSE("dot_product_attention_fp8_bwd", CUDNN),
    REFUSE("dot_product_attention_fp8_fwd_wrapper", CUDNN),
    REFUSE("dot_product_attention_fp8_bwd_wrapper", CUDNN),
    REFUSE("scaled_matmul", CUDNN),
    REFUSE("scaled_matmul_wrapper", CUDNN),
    REFUSE("core_map", DEVICE),
    REFUSE("coo_spmv", SPARSE),
    REFUSE("coo_spmm", SPARSE),
    REFUSE("csr_spmv", SPARSE),
    REFUSE("csr_spmm", SPARSE),
    REFUSE("spsolve", "it calls a library's sparse solver, which ONNX cannot represent"),
    REFUSE("psend", EXCHANGE),
    REFUSE("precv", EXCHANGE),
    REFUSE("ragged_all_to_all", EXCHANGE),
    REFUSE("pbroadcast_dynamic", EXCHANGE),
    REFUSE("all_gather_start", EXCHANGE),
    REFUSE("all_gather_done", EXCHANGE),
    REFUSE("all_gather_reduced_start", EXCHANGE),
    REFUSE("all_to_all_start", EXCHANGE),
    REFUSE("all_to_all_done", EXCHANGE),
    REFUSE("pbroadcast_start", EXCHANGE),
    REFUSE("pbroadcast_done", EXCHANGE),
    REFUSE("ppermute_start", EXCHANGE),
    REFUSE("ppermute_done", EXCHANGE),
    REFUSE("psum_start", EXCHANGE),
    REFUSE("psum_invariant_start", EXCHANGE),
    REFUSE("psum_done", EXCHANGE),
    REFUSE("reduce_scatter_start", EXCHANGE),
    REFUSE("reduce_scatter_done", EXCHANGE),
    REFUSE("unreduced_psum_start", EXCHANGE),
    REFUSE("unreduced_reduce_scatter_start", EXCHANGE),
    REFUSE("ag_start", EXCHANGE),
    REFUSE("ag_done", EXCHANGE),
    REFUSE("full_to_shard", EXCHANGE),
    REFUSE("shard_to_full", EXCHANGE),
    REFUSE("xla_pmap", "it maps over devices, but a model runs on a single device; use jax.vmap"),
    REFUSE("infeed", EXCHANGE),
    REFUSE("outfeed", EXCHANGE),
    REFUSE("create_token", TOKEN),
    REFUSE("after_all", TOKEN),
    REFUSE("custom_lin", FORWARD),
    REFUSE("create_linear", DERIVATIVE),
    REFUSE("to_edtype", ELEMENT_TYPE),
    REFUSE("from_edtype", ELEMENT_TYPE),
    REFUSE("unreachable", "JAX marks this operation as unreachable"),
    {0},
};
/* clang-format on */
