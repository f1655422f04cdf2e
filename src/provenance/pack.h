/* Packing text: what a model says about where it came from, in few printable characters.
 *
 * A byte is coded bit by bit. Contexts (the letters before, the word, the column of a row of numbers and the numbers
 * that stood there) each predict the next bit from how often it was 0 or 1 behind them; a mixer weighs the predictions
 * and learns from each outcome; an arithmetic coder writes digits of base 94, the characters from '!' to '~'. Both
 * sides first learn a dictionary: the beginning of the text that an export usually makes. All is integer arithmetic,
 * so what one machine packs another unpacks.
 *
 * Whatever is changed here or in a dictionary makes what was packed before unreadable: it is another format and needs
 * another version beside the ones before it. The first is for tables of up to version 5, the second for later ones.
 */
#ifndef J2O_PROVENANCE_PACK_H
#define J2O_PROVENANCE_PACK_H

#include "base/builder.h"
#include "base/context.h"

typedef enum PackVersion { PACK_HEADED = 1, PACK_ENDED = 2 } PackVersion;

enum { PACK_BASE = 94, PACK_FIRST = '!' }; /* digits, and the character of the digit 0 */

/* The characters of a text, added to `out`. */
void pack_text(Context *context, PackVersion version, Builder *out, const char *text, size_t length);

/* `length` bytes into `text`; false when these are not the characters of a text of that length. */
bool unpack_text(Context *context, PackVersion version, const char *packed, size_t size, char *text, size_t length);

/* A number from 1 on as such digits, and back: 0 when it is none, or not written in the one usual way. */
void pack_number(Builder *out, uint64_t number);
uint64_t unpack_number(const char *text, size_t length);

/* A digest, which nothing can shorten, as 40 digits and back; false when it is none. */
enum { DIGEST_BYTES = 32, DIGEST_DIGITS = 40 };
void pack_digest(Builder *out, const unsigned char digest[DIGEST_BYTES]);
bool unpack_digest(const char *digits, unsigned char digest[DIGEST_BYTES]);

/* May a text of this length be packed into so many characters? A few of them can stand for a very long text, which
 * takes time to unpack: what a reader would refuse is not to be written. */
bool pack_is_moderate(size_t length, size_t size);

#endif
