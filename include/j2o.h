/* jax2onnx, the core library. Everything public has the prefix j2o_. */
#ifndef J2O_H
#define J2O_H

#ifdef __cplusplus
extern "C" {
#endif

/* The version of the library, "major.minor.patch". */
const char *j2o_version(void);

#ifdef __cplusplus
}
#endif

#endif
