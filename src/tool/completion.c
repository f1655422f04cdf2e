/* What shells and man know of the commands, made of the tables and texts that the program itself uses. */
#include <string.h>

#include "tool/tool.h"

/* The commands of a program: those of the table, and more as texts, the options after the name: jax2onnx has some. */
typedef struct Commands {
  const char *name;
  char **more;
  int more_count;
} Commands;

/* What a shell is told. @ stands for the program, $ in a row for the command. */
typedef struct Shell {
  const char *name;
  const char *start;     /* before the names of the commands */
  const char *middle;    /* behind them */
  const char *row_start; /* before the options of a command */
  const char *row_end;   /* behind them */
  const char *end;
} Shell;

static const Shell shells[] = {
    {"bash",
     "_@() {\n"
     "  local word=${COMP_WORDS[COMP_CWORD]} options=\n"
     "  if [ \"$COMP_CWORD\" -eq 1 ]; then\n"
     "    COMPREPLY=($(compgen -W \"help completion man --help --version",
     "\" -- \"$word\"))\n    return\n  fi\n  case ${COMP_WORDS[1]} in\n", "    $) options=\"--help", "\" ;;\n",
     "  esac\n"
     "  case $word in\n"
     "    -*) COMPREPLY=($(compgen -W \"$options\" -- \"$word\")) ;;\n"
     "    *) COMPREPLY=($(compgen -f -- \"$word\")) ;;\n"
     "  esac\n"
     "}\n"
     "complete -o filenames -F _@ @\n"},
    {"zsh",
     "#compdef @\n"
     "_@() {\n"
     "  local -a options\n"
     "  if (( CURRENT == 2 )); then\n"
     "    compadd -- help completion man --help --version",
     "\n    return\n  fi\n  case $words[2] in\n", "    $) options=(--help", ") ;;\n",
     "  esac\n"
     "  if [[ $PREFIX == -* ]]; then compadd -- $options; else _files; fi\n"
     "}\n"
     "compdef _@ @\n"},
    {"fish", "complete -c @ -n __fish_use_subcommand -f -a 'help completion man --help --version", "'\n",
     "complete -c @ -n '__fish_seen_subcommand_from $' -a '--help", "'\n", ""},
};

static void print_part(FILE *out, const char *part, const Commands *program, const char *command, size_t length) {
  for (; *part; part++) {
    if (*part == '@') fputs(program->name, out);
    else if (*part == '$' && command) fwrite(command, 1, length, out);
    else fputc(*part, out);
  }
}

static void print_row(FILE *out, const Shell *shell, const Commands *program, const Command *command) {
  print_part(out, shell->row_start, program, command->name, strlen(command->name));
  const char *option;
  for (size_t i = 0; (option = tool_option(command, i)); i++) fprintf(out, " %s", option);
  fputs(shell->row_end, out);
}

static void print_more_row(FILE *out, const Shell *shell, const Commands *program, const char *row) {
  size_t length = strcspn(row, " ");
  print_part(out, shell->row_start, program, row, length);
  fputs(row + length, out);
  fputs(shell->row_end, out);
}

static void print_completion(FILE *out, const Shell *shell, const Commands *program) {
  print_part(out, shell->start, program, NULL, 0);
  for (const Command *command = tool_commands; command->name; command++) fprintf(out, " %s", command->name);
  for (int i = 0; i < program->more_count; i++) {
    fprintf(out, " %.*s", (int)strcspn(program->more[i], " "), program->more[i]);
  }
  fputs(shell->middle, out);
  for (const Command *command = tool_commands; command->name; command++) print_row(out, shell, program, command);
  for (int i = 0; i < program->more_count; i++) print_more_row(out, shell, program, program->more[i]);
  print_part(out, shell->end, program, NULL, 0);
}

const char completion_help[] =
    "usage: j2o completion bash|zsh|fish\n"
    "\n"
    "Prints what the shell needs to complete commands and options:\n"
    "\n"
    "  bash: eval \"$(j2o completion bash)\" in ~/.bashrc\n"
    "  zsh:  eval \"$(j2o completion zsh)\" in ~/.zshrc, after compinit\n"
    "  fish: j2o completion fish > ~/.config/fish/completions/j2o.fish\n";

/* completion SHELL [PROGRAM [ROW]...] */
bool run_completion(int argc, char **argv, FILE *out) {
  for (size_t i = 0; argc > 2 && i < sizeof shells / sizeof *shells; i++) {
    if (strcmp(shells[i].name, argv[2]) != 0) continue;
    Commands program = {argc > 3 ? argv[3] : "j2o", argv + 4, argc > 4 ? argc - 4 : 0};
    print_completion(out, &shells[i], &program);
    return true;
  }
  return false;
}

/* ---- the manual page ---- */

/* A line of a help text, as it stands: a leading dot or quote would be a request. */
static void print_roff_line(FILE *out, const char *line, size_t length) {
  if (length && (*line == '.' || *line == '\'')) fputs("\\&", out);
  for (size_t i = 0; i < length; i++) {
    if (line[i] == '\\') fputs("\\e", out);
    else if (line[i] == '-') fputs("\\-", out);
    else fputc(line[i], out);
  }
  fputc('\n', out);
}

static void print_roff(FILE *out, const char *text) {
  fputs(".nf\n", out);
  while (*text) {
    size_t length = strcspn(text, "\n");
    print_roff_line(out, text, length);
    text += length + (text[length] == '\n');
  }
  fputs(".fi\n", out);
}

void print_manual(FILE *out) {
  fputs(".TH J2O 1 \"\" \"j2o " J2O_VERSION
        "\" \"User Commands\"\n"
        ".SH NAME\nj2o \\- look into ONNX models and where their nodes came from\n.SH DESCRIPTION\n",
        out);
  print_roff(out, tool_help);
  for (const Command *command = tool_commands; command->name; command++) {
    fprintf(out, ".SH j2o %s\n", command->name);
    print_roff(out, command->help);
  }
  fputs(".SH j2o completion\n", out);
  print_roff(out, completion_help);
}
