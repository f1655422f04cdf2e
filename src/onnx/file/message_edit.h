/* The messages of a model that hold metadata, and edits of them: a walk over the messages collects edits, ranges of
 * bytes and what replaces them; then the model is encoded back to front around them. Only messages that hold an edit
 * get a new length. */
#ifndef J2O_ONNX_FILE_MESSAGE_EDIT_H
#define J2O_ONNX_FILE_MESSAGE_EDIT_H

#include "base/array.h"
#include "base/builder.h"
#include "onnx/file/metadata_edit.h"
#include "onnx/file/wire.h"

typedef enum Message {
  MESSAGE_OTHER,
  MESSAGE_MODEL,
  MESSAGE_GRAPH,
  MESSAGE_NODE,
  MESSAGE_ATTRIBUTE,
  MESSAGE_FUNCTION,
  MESSAGE_TENSOR,
  MESSAGE_VALUE_INFO,
  MESSAGE_SPARSE,
  MESSAGE_TRAINING,
} Message;

typedef struct Edit {
  const unsigned char *start, *end; /* what goes */
  const char *text;                 /* what comes instead */
  size_t size;
  const unsigned char *end_of; /* where the message begins at whose end the text stands; NULL: it is elsewhere */
} Edit;

typedef struct MessageEditor MessageEditor;
struct MessageEditor {
  Context *context;
  const unsigned char *bytes;
  size_t size;
  void (*visit)(MessageEditor *editor, Message kind, Wire message); /* after the messages inside */
  void *data;                                                       /* the visitor's own */
  ARRAY(Edit) edits;
  uint64_t changes;
};

static inline Wire whole_message(const MessageEditor *editor) {
  return (Wire){editor->context, editor->bytes, editor->bytes, editor->bytes + editor->size};
}

/* Calls visit on every message that can hold metadata, or holds one that can. */
void messages_walk(MessageEditor *editor);
/* The bytes with all edits made. */
Rewritten messages_edit(MessageEditor *editor);

void add_edit(MessageEditor *editor, const unsigned char *start, const unsigned char *end, const Builder *text);
/* At the end of a message. */
void append_edit(MessageEditor *editor, Wire message, const Builder *text);

/* What kind of message a field of another holds. */
Message inner_message(Message outer, const Field *field);
uint64_t metadata_field(Message kind); /* 0: it has none */
int entry_field(Message kind);         /* the same as a number */
uint64_t doc_string_field(Message kind);

/* ---- entries ---- */

typedef struct Entry {
  const unsigned char *start, *end; /* of the field */
  Field key, value;
  bool plain; /* exactly a key and a value, lengths written in the one usual way */
} Entry;

/* Has a message an entry of this project's exports? `metadata` is its field. metadata_edit.c */
bool message_has_ours(Wire message, uint64_t metadata);
/* Of a model that was read: the list of the thing that a message is; NULL when it has none. metadata_edit.c */
MetadataList *message_metadata(const Model *model, Message kind, const Wire *message);

Entry read_entry(const Wire *wire, const Field *field);
bool is_key(const Entry *entry, const char *key);
void add_varint(Builder *out, uint64_t value);
void add_entry(Builder *out, int field, const char *key, const char *value, size_t value_size);

#endif
