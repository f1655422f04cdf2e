/* A table of origins: every distinct frame, call stack and trace of a model once, as lines of text. A node then needs
 * only the number of its origin. Nothing is lost: the texts that the full level writes come back byte by byte.
 *
 * The text begins with "j2o origins 5" ("4": without what is marked by ****, "3": nor by ***, and so on); eight
 * sections follow, each
 * with a line "NAME COUNT" and COUNT rows. Rows are counted from 1; 0 stands for none. In files and names a backslash
 * and a line end are written \\ and \n.
 *
 *   files    SHARED REST        a path: the first SHARED bytes of the row before, then REST
 *   names    TEXT               functions, plugins, and whatever has no better place
 *   frames   FILE LINE NAME     frames of libraries and of the converter; "0 0 NAME": a line of any other form
 *   inner    FRAME FRAME …      what a user's line called, innermost first
 *   calls    FRAME OUTER        a call stack: the last call, and the row with those around it
 *   outer    FILE LINE NAME OUTER   a user's line, and the row of the line that called it. "+N" or "-N": like the row
 *                               before but for the line number, which is N more or less.
 *                               ** "+N*TIMES" stands for as many rows of "+N", 16 at most
 *   ways     INNER CALLS        what many origins share
 *   origins  WAY [OUTER] […]    OUTER, where it is not there, is one more than that of the row before. Then, where
 *                               needed: "cNAME" a callsite that is not the first line of OUTER, "pNAME" a plugin that
 *                               is not the last of CALLS, "+INNER,OUTER" a further trace of merged nodes,
 *                               * "mNAME" a module that is not that of the row before, 0 for none
 *                               * "sCOLUMN-COLUMN" a span on the line of the callsite
 *                               * "sLINE:COLUMN-LINE:COLUMN" any other, "tNAME" one of another form
 *                               * "wNAME" what an initializer was made of
 *                               ** A span on the line of the callsite that the last row of the same WAY had is not
 *                               written again; "s" alone: there is none
 *                               ** "=N […]": all but the modules is that of the row N before
 *                               *** "fNAME" a further module, of what was fused into it
 *                               **** "oMARK" the mark of the operator of the node that it was written for, where that
 *                               is not the mark of the last row of the same WAY; "o" alone: it was for an initializer
 *                               **** "WNAME" instead of "wNAME": for the initializer that is called like the first of
 *                               those it was made of
 *
 * A node that keeps its callsite needs no number when its row is the first with that callsite and the mark of its
 * operator. **** Before, when it was the first with that callsite, *** or the only one. ** An initializer needs none
 * when its row says what it is called. ****
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

#define TABLE_HEADING "j2o origins 5\n"
#define TABLE_VERSION 5 /* its number; those before it are read, too */

enum { LONGEST_RUN = 16 /* of rows of outer written as one */ };

#endif
