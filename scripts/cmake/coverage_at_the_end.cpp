// Linked into every program that counts the lines it runs: writes the counts down also where a
// process ends without exit().

extern "C" {

int __llvm_profile_write_file();
void __llvm_profile_reset_counters();
[[noreturn]] void __real__exit(int code);
int __real_raise(int signal);

[[noreturn]] void __wrap__exit(int code) {
  __llvm_profile_write_file();
  __real__exit(code);
}

/// It may be the last that is heard of this process.
int __wrap_raise(int signal) {
  __llvm_profile_write_file();
  __llvm_profile_reset_counters();
  return __real_raise(signal);
}
}
