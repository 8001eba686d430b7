// Starts so many processes at the same moment that each of them finds the lock's file in use.

#include <doctest/doctest.h>

#include <string>

#include "support/scene.hpp"

using namespace dlock;
using namespace dlock::test;

TEST_CASE("four hundred jobs of one host that begin at once all run") {
  const LocalScene scene;
  Process shell = scene.start_shell(
      "i=0; while [ $i -lt 400 ]; do i=$((i + 1)); "
      "\"$DLOCK\" run -q -k rush -- \"$STAMP\" \"$LOG\" ran rush & done; wait");
  CHECK(eventually([&] { return !shell.running(); }, milliseconds(300'000)));
  const Result result = shell.wait();
  CHECK(result.err == "");
  std::size_t ran = 0;
  const std::string log = read_file(scene.log());
  for (const char each : log) ran += each == '\n' ? 1 : 0;
  CHECK(ran == 400);
  CHECK(scene.kept() == scene.may_stay({"rush"}));
}
