// Linked into every program that counts the lines it runs: writes the counts down also where a
// process ends without exit().

extern "C" {

void __gcov_dump();
void __gcov_reset();
[[noreturn]] void __real__exit(int code);
int __real_raise(int signal);

[[noreturn]] void __wrap__exit(int code) {
  __gcov_dump();
  __real__exit(code);
}

/// It may be the last that is heard of this process.
int __wrap_raise(int signal) {
  __gcov_dump();
  __gcov_reset();
  return __real_raise(signal);
}
}
