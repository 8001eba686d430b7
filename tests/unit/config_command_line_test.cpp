#include <doctest/doctest.h>

#include "config/command_line.hpp"
#include "unit/config_support.hpp"

namespace dlock {
namespace {

using test::refusal;
using Words = std::vector<std::string>;

CommandLine parse(const Words& arguments) { return parse_command_line(arguments); }

TEST_CASE("every argument of COMMAND arrives byte for byte") {
  const Words command = {"cmd", "[a,b]", "[]",  "++", "",     "-k",   "--key=x", "--", "-h",
                         "{}",  "%%",    "\"q", "'",  "a\nb", "-nqv", "=",       "/x", "\xff\xfe"};
  for (const Words& before : {Words{"run", "-k", "K"}, Words{"run", "-k", "K", "--"}}) {
    Words all = before;
    all.insert(all.end(), command.begin(), command.end());
    const CommandLine flags = parse(all);
    CHECK(flags.operands == command);
    CHECK(flags.values("key") == Words{"K"});
    CHECK_FALSE(flags.help);
  }
}

TEST_CASE("a COMMAND may look like a flag behind --") {
  CHECK(parse({"run", "-k", "K", "--", "--", "-k"}).operands == Words{"--", "-k"});
  CHECK(parse({"run", "-k", "K", "--", "-x"}).operands == Words{"-x"});
  CHECK(parse({"run", "-k", "K", "-", "a"}).operands == Words{"-", "a"});
  CHECK(parse({"run", "-k", "K", "", "a"}).operands == Words{"", "a"});
  CHECK(parse({"run", "-k", "K", "--"}).operands.empty());
}

TEST_CASE("values arrive byte for byte, however they are attached") {
  const Words odd = {"[a,b]", "[]",   "++",  "{}",    "%%",        "a,b",   " x ", "-n",
                     "--key", "--",   "=",   "=x",    "a=b",       "\"q\"", "'q'", "\xff",
                     "a\nb",  "$(x)", "`x`", "\\n",   "[[a],[b]]", "[a",    "b]",  "true",
                     "{a,b}", "#x",   "-1",  "--x=y", "//",        "/x"};
  for (const std::string& value : odd) {
    CAPTURE(value);
    CHECK(parse({"acquire", "-k", value}).values("key") == Words{value});
    CHECK(parse({"acquire", "-k" + value}).values("key") == Words{value});
    CHECK(parse({"acquire", "--key", value}).values("key") == Words{value});
    CHECK(parse({"acquire", "--key=" + value}).values("key") == Words{value});
    CHECK(parse({"acquire", "--label", value}).value("label") == value);
    CHECK(parse({"run", "-c", value}).value("command") == value);
    CHECK(parse({"acquire", "--server=" + value}).values("server") == Words{value});
    CHECK(parse({"acquire", "-k", "x", "-k", value, "-ky"}).values("key") ==
          Words{"x", value, "y"});
  }
}

TEST_CASE("short flags cluster, the last may have a value") {
  const CommandLine flags = parse({"run", "-nqvk", "K", "-sE5", "cmd"});
  CHECK(flags.has("nonblock"));
  CHECK(flags.has("q"));
  CHECK(flags.has("verbose"));
  CHECK(flags.has("shared"));
  CHECK(flags.values("key") == Words{"K"});
  CHECK(flags.value("conflict-exit-code") == "5");
  CHECK(parse({"run", "-nkKEY"}).values("key") == Words{"KEY"});
  CHECK(parse({"run", "-knqv"}).values("key") == Words{"nqv"});
}

TEST_CASE("aliases mean what they stand for") {
  CHECK(parse({"run", "-e"}).has("exclusive"));
  CHECK(parse({"run", "-ne"}).has("exclusive"));
  CHECK(parse({"run", "--nb"}).has("nonblock"));
  CHECK(parse({"run", "--verbose"}).has("verbose"));
  CHECK_FALSE(refusal({"run", "--e"}).empty());
  CHECK_FALSE(refusal({"run", "--n"}).empty());
}

TEST_CASE("every flag of every command fills something") {
  for (const Subcommand& each : subcommands()) {
    for (const Option& option : options()) {
      if (!option.belongs_to(each.command)) continue;
      CAPTURE(std::string(each.name) + " " + option.shown());
      Words arguments = {each.name, option.shown()};
      if (option.takes_value()) arguments.emplace_back("v");
      const CommandLine flags = parse(arguments);
      REQUIRE(flags.given.size() == 1);
      CHECK(flags.given.front().option == &option);
      CHECK(flags.given.front().value == (option.takes_value() ? "v" : ""));
    }
  }
}

TEST_CASE("of a flag given twice the later wins") {
  CHECK(parse({"run", "-w", "1", "--wait=2", "-w3"}).value("wait") == "3");
  CHECK(parse({"run", "--label", "a", "--label", "b"}).value("label") == "b");
  CHECK(parse({"run", "-q", "-q"}).has("q"));
}

TEST_CASE("-n and -w are one flag, as are -s, -x and --limit") {
  CommandLine flags = parse({"run", "-w", "5", "-n"});
  CHECK(flags.has("nonblock"));
  CHECK_FALSE(flags.has("wait"));
  flags = parse({"run", "-n", "-w", "5"});
  CHECK_FALSE(flags.has("nonblock"));
  CHECK(flags.value("wait") == "5");
  flags = parse({"run", "-s", "--limit", "3", "-x"});
  CHECK(flags.has("exclusive"));
  CHECK_FALSE(flags.has("shared"));
  CHECK_FALSE(flags.has("limit"));
  flags = parse({"run", "-x", "-s"});
  CHECK(flags.has("shared"));
  CHECK_FALSE(flags.has("exclusive"));
  flags = parse({"run", "-s", "--limit", "3"});
  CHECK(flags.value("limit") == "3");
  CHECK_FALSE(flags.has("shared"));
}

TEST_CASE("-k and --server add up") {
  const CommandLine flags =
      parse({"run", "-ka", "--server", "u", "--key=b", "-k", "a", "--server=v"});
  CHECK(flags.values("key") == Words{"a", "b", "a"});
  CHECK(flags.values("server") == Words{"u", "v"});
}

TEST_CASE("an operand is a key in every command but run, in the order given") {
  for (const char* command : {"acquire", "renew", "release", "inspect"}) {
    CAPTURE(command);
    CHECK(parse({command, "b", "-k", "a", "c"}).values("key") == Words{"b", "a", "c"});
    CHECK(parse({command, "--", "-k", "--"}).values("key") == Words{"-k", "--"});
    CHECK(parse({command, "-"}).values("key") == Words{"-"});
    CHECK(parse({command, "a", "-q", "b"}).has("q"));
    CHECK(refusal({command, ""}) == "--key: the value is empty");
  }
}

TEST_CASE("doctor has no key, and takes no operand") {
  CHECK(refusal({"doctor", "-k", "a"}) ==
        "-k is not a flag of doctor, but of run, acquire, renew, release, inspect, latch");
  CHECK(refusal({"doctor", "redis://u:secret@db1"}) ==
        "doctor takes no operand: \"redis://***@db1\"");
  CHECK(refusal({"doctor", "--", "a"}) == "doctor takes no operand: \"a\"");
  CHECK(parse({"doctor", "--acl"}).has("acl"));
}

TEST_CASE("an operand of inspect or release with a glob character is a pattern, -k is exact") {
  const CommandLine flags = parse({"inspect", "a*", "-k", "b*", "c?", "[d]", "e]", "{f}"});
  CHECK(flags.operands == Words{"a*", "c?", "[d]"});
  CHECK(flags.values("key") == Words{"b*", "e]", "{f}"});
  CHECK(parse({"inspect", "--", "-*"}).operands == Words{"-*"});
  CHECK(parse({"release", "a*"}).operands == Words{"a*"});
  CHECK(parse({"renew", "a*"}).values("key") == Words{"a*"});
}

TEST_CASE("help and version are found everywhere before COMMAND, and end the reading") {
  CHECK(parse({"--help"}).help);
  CHECK(parse({"-h"}).help);
  CHECK(parse({"-h", "--rubbish"}).help);
  CHECK_FALSE(parse({"--help"}).command);
  CHECK(parse({"--version"}).version);
  CHECK(parse({"-V"}).version);
  for (const Subcommand& each : subcommands()) {
    CHECK(parse({each.name, "-h"}).help);
    CHECK(parse({each.name, "--help"}).command == each.command);
    CHECK(parse({each.name, "--server", "S", "-qV", "--rubbish"}).version);
    CHECK_FALSE(parse({each.name, "--server", "S", "--version"}).help);
    CHECK(parse({each.name, "-hq"}).help);
    CHECK(parse({each.name, "-Vq"}).version);
  }
  CHECK_FALSE(parse({"run", "-k", "--help", "cmd"}).help);
  CHECK_FALSE(parse({"run", "-k", "K", "cmd", "--help"}).help);
  CHECK_FALSE(parse({"release", "--", "--help"}).help);
}

TEST_CASE("help is a command, too, with or without the name of another") {
  for (const Words& words : {Words{"help"}, Words{"help", "help"}, Words{"help", "--help"}}) {
    CHECK(parse(words).help);
    CHECK_FALSE(parse(words).command);
  }
  CHECK(parse({"help", "latch"}).help);
  CHECK(parse({"help", "latch"}).command == Command::latch);
  CHECK(refusal({"help", "nonsense"}).starts_with("unknown command "));
  CHECK(refusal({"help", "latch", "wait"}) == "help takes one command: dlock help COMMAND");
}

TEST_CASE("dlock alone has neither command nor help") {
  const CommandLine flags = parse({});
  CHECK_FALSE(flags.command);
  CHECK_FALSE(flags.help);
  CHECK_FALSE(flags.version);
}

TEST_CASE("an empty value is an error, never the next argument") {
  const std::string empty = "--key: the value is empty";
  CHECK(refusal({"run", "--key=", "K", "cmd"}) == empty);
  CHECK(refusal({"run", "--key", "", "cmd"}) == empty);
  CHECK(refusal({"run", "-k", "", "cmd"}) == empty);
  CHECK(refusal({"run", "-nk", "", "cmd"}) == empty);
  CHECK(refusal({"run", "-w", ""}) == "--wait: the value is empty");
  for (const Option& option : options()) {
    for (const Subcommand& each : subcommands()) {
      if (!option.takes_value() || !option.belongs_to(each.command)) continue;
      const std::string empty_value = option.shown() + ": the value is empty";
      const bool of_failed_acquire =
          each.command == Command::release && option.shown() == "--token";
      CHECK(refusal({each.name, option.shown() + "="}) ==
            (option.has(may_be_empty) || of_failed_acquire ? "" : empty_value));
      CHECK(refusal({each.name, option.shown()}).starts_with(option.shown() + " needs a value"));
    }
  }
}

TEST_CASE("a value where none is wanted is an error") {
  CHECK(refusal({"run", "--nonblock=1"}) == "--nonblock takes no value");
  CHECK(refusal({"run", "--nb=1"}) == "--nonblock takes no value");
  CHECK(refusal({"run", "--shared="}) == "--shared takes no value");
  CHECK(refusal({"run", "--help=x"}) == "--help takes no value");
  CHECK(refusal({"run", "-n5"}) == "unknown flag -5 in -n5");
}

TEST_CASE("long names are not abbreviated, but suggested") {
  CHECK(refusal({"run", "--waitt", "5"}) == "unknown flag --waitt: did you mean --wait?");
  CHECK(refusal({"run", "--wiat", "5"}) == "unknown flag --wiat: did you mean --wait?");
  CHECK(refusal({"run", "--wai=5"}) == "unknown flag --wai: did you mean --wait?");
  CHECK(refusal({"run", "--conflict"}) ==
        "unknown flag --conflict: did you mean --conflict-exit-code?");
  CHECK(refusal({"run", "--exlusive"}) == "unknown flag --exlusive: did you mean --exclusive?");
  CHECK(refusal({"run", "--bananas"}) == "unknown flag --bananas");
  CHECK(refusal({"run", "-Z"}) == "unknown flag -Z");
  CHECK(refusal({"run", "-nZk", "a"}) == "unknown flag -Z in -nZk");
  CHECK(refusal({"run", "---"}) == "unknown flag ---");
  CHECK(refusal({"run", "--=x"}) == "unknown flag --");
  CHECK(refusal({"run", "--password=x"}).starts_with("unknown flag --password"));
}

TEST_CASE("a flag of another command is told from an unknown one") {
  CHECK(refusal({"inspect", "--ttl", "5"}) ==
        "--ttl is not a flag of inspect, but of run, acquire, renew, latch, doctor");
  CHECK(refusal({"acquire", "-E", "5"}) == "-E is not a flag of acquire, but of run");
  CHECK(refusal({"run", "--json"}) ==
        "--json is not a flag of run, but of acquire, renew, release, inspect, latch, doctor");
  CHECK(refusal({"release", "-n"}) == "-n is not a flag of release, but of run, acquire, latch");
}

TEST_CASE("what does not exist is refused by its name") {
  for (const Subcommand& each : subcommands()) {
    CHECK(refusal({each.name, "--quiet", "1"}).starts_with("unknown flag --quiet"));
  }
  for (const char* command : {"hlep", "RUN", "", " run"}) {
    CHECK(refusal({command}).starts_with("unknown command \"" + std::string(command) + "\""));
  }
}

TEST_CASE("flock's own flags are refused with what to use instead") {
  for (const char* flag : {"-F", "--no-fork", "-o", "--close", "-u", "--unlock", "--timeout"}) {
    CAPTURE(flag);
    const std::string start = std::string(flag) + " is a flag of flock, not of dlock: ";
    CHECK(refusal({"run", flag, "5", "cmd"}).starts_with(start));
    CHECK(refusal({"inspect", flag}).starts_with(start));
    CHECK(refusal({flag, "x"}).starts_with(start));
  }
  CHECK(refusal({"run", "--timeout=5"}).ends_with(": use --wait"));
  CHECK(refusal({"run", "-nu"}).find("dlock release") != std::string::npos);
  CHECK(refusal({"run", "-F"}).find("renew") != std::string::npos);
  CHECK(refusal({"run", "-o"}).find("descriptor") != std::string::npos);
}

TEST_CASE("what other lock tools call a command is known") {
  CHECK(refusal({"list"}) == "unknown command \"list\": did you mean dlock inspect?");
  CHECK(refusal({"watch"}) == "unknown command \"watch\": did you mean dlock inspect --watch?");
  CHECK(refusal({"unlock", "a"}).ends_with(": did you mean dlock release?"));
  CHECK(refusal({"break", "a"}).ends_with(": did you mean dlock release KEY --force?"));
  CHECK(refusal({"lock", "a"})
            .ends_with(": did you mean dlock run -k KEY -- COMMAND, or dlock acquire?"));
  CHECK(refusal({"/tmp/job.lock", "echo"}) ==
        "unknown command \"/tmp/job.lock\": a command runs under a lock with "
        "dlock run -k KEY -- COMMAND");
}

TEST_CASE("unknown commands are suggested") {
  CHECK(refusal({"rnu"}) == "unknown command \"rnu\": did you mean run?");
  CHECK(refusal({"aquire", "-k"}) == "unknown command \"aquire\": did you mean acquire?");
  CHECK(refusal({"rel"}) == "unknown command \"rel\": did you mean release?");
  CHECK(refusal({"bananas"}) ==
        "unknown command \"bananas\": it is one of run, acquire, renew, release, inspect, latch, "
        "doctor, guard");
}

TEST_CASE("options come after the command's name") {
  const std::string middle = " comes before the command of dlock: options come after it, as in ";
  CHECK(refusal({"-k", "K", "run"}) == "-k" + middle + "dlock run -k KEY -- COMMAND");
  CHECK(refusal({"--key=K", "run"}) == "--key" + middle + "dlock run -k KEY -- COMMAND");
  CHECK(refusal({"--watch"}) == "--watch" + middle + "dlock run -k KEY -- COMMAND");
  CHECK(refusal({"--", "run"}) == "--" + middle + "dlock run -k KEY -- COMMAND");
  CHECK(refusal({"--bananas"}) == "--bananas" + middle + "dlock run -k KEY -- COMMAND");
}

TEST_CASE("what is shown of the command line is escaped and holds no password") {
  CHECK(refusal({"run", "--\x1b[2J"}) == "unknown flag --\\x1B[2J");
  CHECK(refusal({"a\nb"}).find("a\\x0Ab") != std::string::npos);
  CHECK(refusal({"run", "-\xff"}) == "unknown flag -\\xFF");
  for (const Words& arguments :
       {Words{"redis://:secret@h"}, Words{"run", "--servr=redis://:secret@h"},
        Words{"run", "-Zredis://:secret@h"}, Words{"run", "--redis://:secret@h"},
        Words{"--server=redis://:secret@h"}, Words{"-redis://:secret@h"},
        Words{"run", "--help=redis://:secret@h"}}) {
    CHECK_FALSE(refusal(arguments).empty());
    CHECK(refusal(arguments).find("secret") == std::string::npos);
  }
  CHECK(refusal({"run", "--sever:redis://:c2Vj==@host"}) ==
        "unknown flag --sever:redis://***@host");
  CHECK(refusal({"--sever:redis://:c2Vj==@host"})
            .starts_with("--sever:redis://***@host comes before the command"));
  CHECK(refusal({"run", "--redis://:c2Vj==@h?x=1"}).find("c2Vj") == std::string::npos);
  CHECK(refusal({"run", "--labl=me@host"}) == "unknown flag --labl: did you mean --label?");
}

}  // namespace
}  // namespace dlock
