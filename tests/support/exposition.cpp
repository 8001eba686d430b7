#include "support/exposition.hpp"

#include <cstdlib>
#include <regex>

#include "base/error.hpp"
#include "base/text.hpp"
#include "support/files.hpp"

namespace dlock::test {
namespace {

const std::string metric_name = "([a-zA-Z_:][a-zA-Z0-9_:]*)";

class ExpositionReader {
 public:
  Exposition read(const std::string& text) {
    if (!text.empty() && text.back() != '\n') fail("no newline at the end");
    if (!is_utf8(text)) fail("not UTF-8");
    for (const std::string& line : lines_of(text)) {
      line_ = line;
      line.starts_with("#") ? comment() : sample();
    }
    for (const auto& [name, metric] : found_.metrics) {
      if (metric.samples.empty()) fail(name + " has no samples");
    }
    return found_;
  }

 private:
  [[noreturn]] void fail(const std::string& why) const {
    throw Error(ErrorKind::wrong_data, why + ": " + escaped(line_));
  }

  void comment() {
    static const std::regex help("# HELP " + metric_name + " ([^\\\\]+)");
    static const std::regex type("# TYPE " + metric_name + " (counter|gauge)");
    std::smatch parts;
    if (std::regex_match(line_, parts, help)) {
      current_ = parts[1];
      if (found_.metrics.contains(current_)) fail("a second HELP, or samples apart");
      found_.metrics[current_].help = parts[2];
    } else if (std::regex_match(line_, parts, type)) {
      Exposition::Metric& metric = found_.metrics[current_];
      if (parts[1] != current_ || !metric.type.empty()) fail("TYPE without its HELP before it");
      metric.type = parts[2];
      if ((metric.type == "counter") != current_.ends_with("_total")) fail("a counter's name");
    } else {
      fail("neither HELP nor TYPE");
    }
  }

  void sample() {
    at_ = line_.find_first_of("{ ");
    if (line_.substr(0, at_) != current_) fail("a sample apart from its metric");
    Exposition::Metric& metric = found_.metrics[current_];
    if (metric.type.empty()) fail("a sample before its TYPE");
    const auto labels = line_[at_] == '{' ? read_labels() : Exposition::Labels{};
    static const std::regex number(" -?([0-9]+(\\.[0-9]+)?|Inf|NaN)");
    const std::string rest = line_.substr(at_);
    if (!std::regex_match(rest, number)) fail("no number");
    const double value = std::strtod(rest.c_str(), nullptr);
    if (!metric.samples.emplace(labels, value).second) fail("a sample twice");
  }

  char take() {
    if (at_ >= line_.size()) fail("ends too early");
    return line_[at_++];
  }

  Exposition::Labels read_labels() {
    Exposition::Labels labels;
    char separator = take();
    while (separator != '}') {
      std::string name;
      for (char c = take(); c != '='; c = take()) name += c;
      static const std::regex label_name("[a-zA-Z_][a-zA-Z0-9_]*");
      if (!std::regex_match(name, label_name) || take() != '"') fail("no label");
      if (!labels.emplace(name, read_value()).second) fail("a label twice");
      separator = take();
      if (separator != ',' && separator != '}') fail("labels are not parted by commas");
    }
    return labels;
  }

  std::string read_value() {
    std::string value;
    for (char c = take(); c != '"'; c = take()) {
      if (c != '\\') {
        value += c;
        continue;
      }
      const char escape = take();
      if (escape != '\\' && escape != '"' && escape != 'n') fail("an unknown escape");
      value += escape == 'n' ? '\n' : escape;
    }
    return value;
  }

  Exposition found_;
  std::string current_;
  std::string line_;
  std::size_t at_ = 0;
};

}  // namespace

double Exposition::at(const std::string& name, const Labels& labels) const {
  if (!has(name, labels)) throw Error(ErrorKind::wrong_data, "no such sample of " + name);
  return metrics.at(name).samples.at(labels);
}

bool Exposition::has(const std::string& name, const Labels& labels) const {
  const auto found = metrics.find(name);
  return found != metrics.end() && found->second.samples.contains(labels);
}

Exposition parse_exposition(const std::string& text) { return ExpositionReader().read(text); }

}  // namespace dlock::test
