// From one rank to one other: send and recv, and many at once.
#include <tandem/examples/collectives/tour.h>
#include <tandem/tandem.h>

namespace td = tandem;

using td::distributed::P2POp;
namespace examples {

Stop send_recv(const Tour& tour) {
  Stop stop("send_recv", "group.send(x, dst);  group.recv(x, src)",
            tour.is_on_gpu() ? "from rank to rank, each adding one; GPUs' messages go through the hosts' memory"
                             : "from rank to rank, each adding one, as through a pipeline");
  const td::Tensor x = td::zeros({1}, {.device = tour.device});
  stop.show("before", x);
  if (tour.group.rank() > 0) tour.group.recv(x, tour.group.rank() - 1);
  x.add_(1);
  if (tour.group.rank() + 1 < tour.group.size()) tour.group.send(x, tour.group.rank() + 1);
  stop.check("after", x, {tour.group.rank() + 1.0});
  return stop;
}

Stop ring_shift(const Tour& tour) {
  Stop stop("batch_isend_irecv", "group.batch_isend_irecv({{kSend, x, next}, {kRecv, y, previous}})",
            "everybody sends to the next and receives from the previous at the same time");
  const int n = tour.group.size();
  const int next = (tour.group.rank() + 1) % n;
  const int previous = (tour.group.rank() + n - 1) % n;
  const td::Tensor x = td::full({2}, 1.0 * tour.group.rank(), {.device = tour.device});
  const td::Tensor y = td::zeros({2}, {.device = tour.device});
  if (n == 1) {
    y.copy_(x);  // nobody else to send to
  } else {
    const std::vector<td::Work> works =
        tour.group.batch_isend_irecv({{.kind = P2POp::Kind::kSend, .tensor = x, .peer = next},
                                      {.kind = P2POp::Kind::kRecv, .tensor = y, .peer = previous}});
    for (const td::Work& work : works) work.wait();
  }
  stop.show("x", x);
  stop.check("after", y, {1.0 * previous, 1.0 * previous});
  return stop;
}

}  // namespace examples
