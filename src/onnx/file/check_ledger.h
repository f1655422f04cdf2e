/* The ledger's proof: every equation that was traced is found again in the bytes of the written model. */
#ifndef J2O_ONNX_FILE_CHECK_LEDGER_H
#define J2O_ONNX_FILE_CHECK_LEDGER_H

#include "provenance/ledger.h"

/* Reads the model back: its nodes' and initializers' traces, and what it says was removed. Fails with ERROR_INTERNAL,
 * naming the trace that is nowhere. Nothing for a provenance without a ledger. */
void check_ledger(Context *context, Provenance *provenance, const void *bytes, size_t size);

#endif
