#include "etcd/http_client.hpp"

#include <fcntl.h>

#include <algorithm>
#include <filesystem>
#include <set>
#include <utility>

#include "base/error.hpp"
#include "base/escape.hpp"
#include "base/wait.hpp"

namespace dlock {
namespace {

/// Of all answers under way. More is none of etcd's: a value has 1.5 MiB at most, and few of a page
/// are large.
constexpr std::size_t largest_answers = 6u << 20;
constexpr std::chrono::seconds longest_poll{3600};

template <typename Value>
void set_option(CURL* handle, CURLoption option, Value value) {
  libcurl().curl_easy_setopt(handle, option, value);
}

/// The library leaves its sockets to the command, were it not for this.
int close_on_exec(void*, curl_socket_t fd, curlsocktype) {
  fcntl(fd, F_SETFD, FD_CLOEXEC);
  return CURL_SOCKOPT_OK;
}

/// The descriptors that a command would inherit, as far as libraries get such numbers.
std::set<int> inheritable_descriptors() {
  constexpr int most_looked_at = 256;
  std::set<int> found;
  for (int fd = 0; fd < most_looked_at; ++fd) {
    const int flags = fcntl(fd, F_GETFD);
    if (flags >= 0 && (flags & FD_CLOEXEC) == 0) found.insert(fd);
  }
  return found;
}

/// Whether the request cannot have reached a server.
bool failed_before_sending(CURLcode code) {
  switch (code) {
    case CURLE_COULDNT_RESOLVE_HOST:
    case CURLE_COULDNT_CONNECT:
    case CURLE_SSL_CONNECT_ERROR:
    case CURLE_PEER_FAILED_VERIFICATION:
    case CURLE_SSL_CERTPROBLEM:
    case CURLE_SSL_CACERT_BADFILE:
      return true;
    default:
      return false;
  }
}

/// More than `Transfer::append` takes, or headers longer than libcurl takes, which it calls a lack
/// of memory.
bool is_too_large(CURLcode code) {
  return code == CURLE_WRITE_ERROR || code == CURLE_OUT_OF_MEMORY;
}

}  // namespace

/// A request under way: what libcurl points to stays where it is.
struct HttpClient::Transfer {
  explicit Transfer(const std::vector<Transfer*>& all) : under_way(all) {}

  /// Called by libcurl with a part of the answer to `transfer`.
  static std::size_t append(char* data, std::size_t size, std::size_t count, void* transfer) {
    auto& into = *static_cast<Transfer*>(transfer);
    std::size_t bytes = size * count;
    for (const Transfer* each : into.under_way) bytes += each->answer.size();
    if (bytes > largest_answers) {
      std::string().swap(into.answer);  // with its memory: the others may need the room
      return 0;
    }
    into.answer.append(data, size * count);
    return size * count;
  }

  const std::vector<Transfer*>& under_way;  ///< this one among them
  CurlPtr handle;
  CurlListPtr connect_to;
  std::string body;
  std::string answer;
  char trouble[CURL_ERROR_SIZE] = "";
  bool done = false;
  CURLcode code = CURLE_OK;
};

HttpClient::HttpClient(std::optional<TlsSettings> tls) : tls_(std::move(tls)) {}

HttpClient::~HttpClient() { close(); }

void HttpClient::set_authorization(const std::string& value) {
  authorization_ = value;
  headers_.reset();
}

CURLM* HttpClient::multi() {
  if (multi_ == nullptr) {
    const auto of_the_caller = inheritable_descriptors();
    multi_.reset(libcurl().curl_multi_init());
    for (const int fd : inheritable_descriptors()) {
      if (!of_the_caller.contains(fd)) fcntl(fd, F_SETFD, FD_CLOEXEC);
    }
  }
  if (headers_ == nullptr) {
    std::vector<std::string> lines{"Content-Type: application/json", "Expect:"};
    if (!authorization_.empty()) lines.push_back("Authorization: " + authorization_);
    for (const std::string& line : lines) {
      curl_slist* const longer = libcurl().curl_slist_append(headers_.get(), line.c_str());
      static_cast<void>(headers_.release());
      headers_.reset(longer);
    }
  }
  if (multi_ == nullptr || headers_ == nullptr) {
    throw Error(ErrorKind::host_refused, "out of memory");
  }
  return multi_.get();
}

void HttpClient::encrypt(CURL* handle) const {
  if (!tls_) return;
  std::error_code none;
  if (!tls_->ca.empty()) {
    const bool folder = std::filesystem::is_directory(tls_->ca, none);
    set_option(handle, folder ? CURLOPT_CAPATH : CURLOPT_CAINFO, tls_->ca.c_str());
  }
  if (tls_->certificate.empty()) return;
  set_option(handle, CURLOPT_SSLCERT, tls_->certificate.c_str());
  set_option(handle, CURLOPT_SSLKEY, tls_->key.c_str());
}

std::unique_ptr<HttpClient::Transfer> HttpClient::begin(const HttpAddress& to, std::string body) {
  auto transfer = std::make_unique<Transfer>(under_way_);
  CURLM* const all = multi();
  transfer->handle.reset(libcurl().curl_easy_init());
  if (transfer->handle == nullptr) throw Error(ErrorKind::host_refused, "out of memory");
  transfer->body = std::move(body);
  CURL* const handle = transfer->handle.get();
  set_option(handle, CURLOPT_URL, to.url.c_str());
  if (!to.connect_to.empty()) {
    transfer->connect_to.reset(libcurl().curl_slist_append(nullptr, to.connect_to.c_str()));
    set_option(handle, CURLOPT_CONNECT_TO, transfer->connect_to.get());
  }
  set_option(handle, CURLOPT_HTTP_VERSION, static_cast<long>(CURL_HTTP_VERSION_1_1));
  set_option(handle, CURLOPT_HTTPHEADER, headers_.get());
  set_option(handle, CURLOPT_POSTFIELDSIZE, static_cast<long>(transfer->body.size()));
  set_option(handle, CURLOPT_POSTFIELDS, transfer->body.c_str());
  set_option(handle, CURLOPT_WRITEFUNCTION, &Transfer::append);
  set_option(handle, CURLOPT_WRITEDATA, static_cast<void*>(transfer.get()));
  set_option(handle, CURLOPT_ERRORBUFFER, transfer->trouble);
  set_option(handle, CURLOPT_NOSIGNAL, 1L);
  set_option(handle, CURLOPT_SOCKOPTFUNCTION, &close_on_exec);
  // Not through what http_proxy names: that is for the web.
  set_option(handle, CURLOPT_PROXY, "");
  set_option(handle, CURLOPT_TCP_KEEPALIVE, 1L);
  encrypt(handle);
  libcurl().curl_multi_add_handle(all, handle);
  under_way_.push_back(transfer.get());
  return transfer;
}

void HttpClient::end(std::unique_ptr<Transfer>& transfer) {
  if (transfer == nullptr) return;
  libcurl().curl_multi_remove_handle(multi_.get(), transfer->handle.get());
  std::erase(under_way_, transfer.get());
  transfer.reset();
}

bool HttpClient::work() {
  int running = 0, left = 0;
  libcurl().curl_multi_perform(multi_.get(), &running);
  bool ended = false;
  while (const CURLMsg* message = libcurl().curl_multi_info_read(multi_.get(), &left)) {
    if (message->msg != CURLMSG_DONE) continue;
    for (Transfer* transfer : under_way_) {
      if (transfer->handle.get() != message->easy_handle) continue;
      transfer->done = ended = true;
      transfer->code = message->data.result;
    }
  }
  return ended;
}

bool HttpClient::wait(Deadline until, int cancel_fd) {
  const auto most = std::min<milliseconds>(left_until(until), longest_poll);
  curl_waitfd extra{cancel_fd, CURL_WAIT_POLLIN, 0};
  const bool can_cancel = cancel_fd >= 0;
  libcurl().curl_multi_poll(multi_.get(), &extra, can_cancel ? 1 : 0,
                            static_cast<int>(most.count()), nullptr);
  return !can_cancel || !readable(cancel_fd);
}

void HttpClient::post(std::vector<HttpCall>& calls, const CallOptions& call_options) {
  std::vector<std::unique_ptr<Transfer>> transfers;
  for (HttpCall& call : calls) transfers.push_back(begin(call.to, call.body));
  const auto all_done = [&] {
    return std::all_of(transfers.begin(), transfers.end(),
                       [](const auto& each) { return each->done; });
  };
  bool interrupted = false;
  work();
  if (call_options.sent != nullptr) call_options.sent->raise();
  while (!all_done() && !interrupted && BootClock::now() < call_options.deadline) {
    interrupted = !wait(call_options.deadline, call_options.cancel_fd);
    work();
  }
  for (std::size_t i = 0; i < calls.size(); ++i) {
    HttpCall& call = calls[i];
    Transfer& transfer = *transfers[i];
    call.answer = std::move(transfer.answer);
    call.code = transfer.done ? transfer.code : CURLE_OPERATION_TIMEDOUT;
    if (call.code == CURLE_OK) {
      libcurl().curl_easy_getinfo(transfer.handle.get(), CURLINFO_RESPONSE_CODE, &call.status);
    } else {
      const std::string said = transfer.trouble;
      call.trouble = !transfer.done            ? "no answer in time"
                     : is_too_large(call.code) ? "an answer that is too large"
                     : said.empty()            ? libcurl().curl_easy_strerror(call.code)
                                               : escaped(said);
      call.may_have_come = !failed_before_sending(call.code);
    }
    end(transfers[i]);
  }
  if (interrupted) throw_interrupted();
}

void HttpClient::open_stream(const HttpAddress& to, const std::string& body) {
  close_stream();
  stream_ = begin(to, body);
}

void HttpClient::close_stream() { end(stream_); }

std::variant<std::string, HttpClient::StreamEnd> HttpClient::next_line(Deadline until,
                                                                       int cancel_fd) {
  while (true) {
    if (stream_ == nullptr) return StreamEnd::broken;
    work();
    const auto line_end = stream_->answer.find('\n');
    if (line_end != std::string::npos) {
      std::string line = stream_->answer.substr(0, line_end);
      stream_->answer.erase(0, line_end + 1);
      return line;
    }
    if (stream_->done) {
      // What is not etcd may answer with a line that does not end.
      std::string rest = std::exchange(stream_->answer, {});
      close_stream();
      if (rest.empty()) return StreamEnd::broken;
      return rest;
    }
    if (BootClock::now() >= until) return StreamEnd::due;
    if (!wait(until, cancel_fd)) return StreamEnd::interrupted;
  }
}

void HttpClient::close() {
  close_stream();
  multi_.reset();
}

}  // namespace dlock
