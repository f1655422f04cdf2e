/* A table of origins: every distinct frame, call stack and trace of a model once, as lines of text. A node then needs
 * only the number of its origin. Nothing is lost: the texts that the full level writes come back byte by byte.
 *
 * The text begins with "j2o origins 6" and a line with the folder of installed packages, which may be empty. Eight
 * sections follow, rows and an empty line each. Rows are counted from 1; 0 stands for none. In paths and names a
 * backslash, a line end and a tab are written \\, \n and \t, and \. stands for nothing: it is a text without letters,
 * and begins one whose first letter would mean something else. "@" stands for the folder of installed packages.
 *
 *   files    PATH               of the user's lines
 *   names    TEXT               their functions, and whatever has no better place
 *   frames   frames of libraries and of the converter, in one of these forms (provenance/known_frames.h):
 *            KNOWN              a known frame, or KNOWN-KNOWN, a row for each of them
 *            KNOWN LINE         the same on another line
 *            NAME<TAB>LINE PATH any other; a number instead of the path: that of a known frame
 *            NAME               a line of any other form
 *   inner    FRAME FRAME …      what a user's line called, innermost first; FRAME-FRAME is all from one to the other
 *   calls    FRAME OUTER        a call stack: the last call, and the row with those around it
 *   outer    FILE LINE NAME OUTER   a user's line, and the row of the line that called it; "FRAME OUTER" where it is a
 *                               library's. "+N" or "-N": like the row before but for the line number, which is N more
 *                               or less. "+N*TIMES" stands for as many rows of "+N", 16 at most
 *   ways     INNER CALLS        what many origins share
 *   origins  WAY [OUTER] […]    OUTER, where it is not there, is one more than that of the row before. Then, where
 *                               needed: "cNAME" a callsite that is not the first line of OUTER, "pNAME" a plugin that
 *                               is not the last of CALLS, "+INNER,OUTER" a further trace of merged nodes, or
 *                               "+INNER-INNER,OUTER" one for each row from one to the other,
 *                               "mNAME" a module that is not that of the row before, 0 for none,
 *                               "fNAME" a further module, of what was fused into it,
 *                               "sCOLUMN-COLUMN" a span on the line of the callsite, where it is not that of the last
 *                               row of the same WAY, "s" alone: there is none,
 *                               "sLINE:COLUMN-LINE:COLUMN" any other, "tNAME" one of another form,
 *                               "wNAME" what an initializer was made of, "WNAME" for the initializer that is called
 *                               like the first of those,
 *                               "oMARK" the mark of the operator of the node that it was written for, where that is
 *                               not the mark of the last row of the same WAY or, of the first, that of the operator
 *                               the plugin is called after; "o" alone: it was for an initializer.
 *                               "=N […]": all but the modules is that of the row N before
 *
 * A node that keeps its callsite needs no number when its row is the first with that callsite and the mark of its
 * operator. An initializer needs none when its row says what it is called.
 *
 * Earlier versions are read, too. Up to 5, a section begins with "NAME COUNT" instead of ending with an empty line;
 * files are "SHARED REST", the first SHARED bytes of the row before and REST; frames are "FILE LINE NAME", or "0 0
 * NAME"; nothing is known, and a line of a library in outer has four numbers. 4 has no marks, so that a node needed no
 * number when its row was the first with its callsite, and an initializer always one; 3 has no further modules, and 2
 * writes no row by another, and a node needed no number when its row was the only one with its callsite (3) or never
 * (2). 1 has neither modules nor spans.
 */
#ifndef J2O_PROVENANCE_TABLE_H
#define J2O_PROVENANCE_TABLE_H

#include <stdbool.h>

#include "base/context.h"

/* What the full level writes on a node or an initializer. */
typedef struct OriginTexts {
  Str callsite, plugin, stacktrace, traceback;
  Str module, span, made_of; /* NULL: none */
  Str fused_modules;         /* likewise: further ones, a line for each */
} OriginTexts;

/* What an origin is written for. */
typedef struct Bearer {
  Str op_type;     /* of a node; else NULL */
  Str initializer; /* its name, where no other has that; else NULL */
} Bearer;

/* Making one: the same origins in the same order give the same text. table_write.c */
typedef struct TableWriter TableWriter;
TableWriter *table_writer_new(Context *context);
/* Its number, from 1; equal origins have one number. */
uint32_t table_add(TableWriter *writer, OriginTexts texts, Bearer bearer);
/* The same for one trace whose lines, innermost first, are known: none is empty or holds a line end. */
uint32_t table_add_trace(TableWriter *writer, OriginTexts texts_but_trace, Bearer bearer, const Str *lines,
                         size_t count);
bool table_is_empty(const TableWriter *writer);
/* Is the row known without its number? */
bool table_tells(const TableWriter *writer, Str callsite, Bearer bearer, uint32_t row);
const char *table_text(TableWriter *writer, size_t *length);

/* Reading one. A small table can stand for much text: no more is written out than `limit` bytes, or 0 for as many as an
 * honest program needs. Both fail with ERROR_FORMAT. table_read.c */
typedef struct Table Table;
Table *table_read(Context *context, const char *text, size_t length, size_t limit);
bool table_get(Table *table, uint64_t number, OriginTexts *texts); /* false when there is no such origin */
/* The row of a node without a number; 0: it has none. A tool may have made another operator of it: then it is the first
 * row with this callsite. */
uint32_t table_row_of_node(Table *table, Str callsite, Str op_type);
uint32_t table_row_of_initializer(Table *table, Str name); /* likewise */

/* One of 94 printable characters. */
char operator_mark(Str op_type);
/* That of the operator that a plugin's function is called after, "SinPlugin.lower"; 0: it is no plugin's, or NULL. */
char mark_of_plugin(Str function);

#define TABLE_HEADING "j2o origins 6\n"
#define TABLE_VERSION 6 /* its number; those before it are read, too */

enum { LONGEST_RUN = 16 /* of rows of outer written as one */ };

#endif
