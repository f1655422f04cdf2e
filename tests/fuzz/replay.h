/* With -DSTANDALONE a harness replays the files that it is given, without a fuzzer. Included at the end of one. */
#ifdef STANDALONE
int main(int argc, char **argv) {
  for (int i = 1; i < argc; i++) {
    FILE *file = fopen(argv[i], "rb");
    if (!file) {
      perror(argv[i]);
      return 1;
    }
    fseek(file, 0, SEEK_END);
    long size = ftell(file);
    rewind(file);
    uint8_t *data = malloc(size > 0 ? (size_t)size : 1);
    size_t got = fread(data, 1, (size_t)size, file);
    fclose(file);
    LLVMFuzzerTestOneInput(data, got);
    free(data);
    printf("%s: fine\n", argv[i]);
  }
  return 0;
}
#endif
