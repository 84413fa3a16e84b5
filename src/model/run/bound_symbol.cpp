#include "model/run/bound_symbol.h"

#include <dlfcn.h>
#include <elf.h>
#include <link.h>

#include <cstring>

namespace clebsch {
namespace {

struct Search {
  std::string caller;
  const char* symbol;
  std::string library;
};

/// The parts of a loaded object that say which symbols it takes from where (System V ABI, "Dynamic Linking").
struct Dynamic {
  const ElfW(Sym) * symbols = nullptr;
  const char* names = nullptr;
  const ElfW(Rela) * relocations[2] = {nullptr, nullptr};  ///< of functions, of everything else
  std::size_t sizes[2] = {0, 0};                           ///< in bytes
  bool with_addends = true;
};

Dynamic read_dynamic(const ElfW(Dyn) * entry, ElfW(Addr) base) {
  Dynamic found;
  for (; entry->d_tag != DT_NULL; ++entry) {
    // glibc has added the base on most machines, others have not.
    const ElfW(Addr) address = entry->d_un.d_ptr < base ? entry->d_un.d_ptr + base : entry->d_un.d_ptr;
    switch (entry->d_tag) {
      case DT_SYMTAB: found.symbols = reinterpret_cast<const ElfW(Sym)*>(address); break;
      case DT_STRTAB: found.names = reinterpret_cast<const char*>(address); break;
      case DT_JMPREL: found.relocations[0] = reinterpret_cast<const ElfW(Rela)*>(address); break;
      case DT_PLTRELSZ: found.sizes[0] = entry->d_un.d_val; break;
      case DT_RELA: found.relocations[1] = reinterpret_cast<const ElfW(Rela)*>(address); break;
      case DT_RELASZ: found.sizes[1] = entry->d_un.d_val; break;
      case DT_PLTREL: found.with_addends = entry->d_un.d_val == DT_RELA; break;
      default: break;
    }
  }
  return found;
}

std::size_t symbol_of(const ElfW(Rela) & relocation) {
  return sizeof(void*) == 8 ? static_cast<std::size_t>(relocation.r_info >> 32) : relocation.r_info >> 8;
}

/// The path of the library that an address lies in; "" when the address is not the start of a symbol's code there but
/// the caller's own stub, which looks the symbol up at its first call.
std::string library_of(const void* address, const dl_phdr_info& caller, const ElfW(Sym) & own) {
  Dl_info info{};
  if (address == nullptr || dladdr(address, &info) == 0 || info.dli_fname == nullptr) return {};
  const bool inside = reinterpret_cast<ElfW(Addr)>(info.dli_fbase) == caller.dlpi_addr;
  const bool stub = inside && (own.st_shndx == SHN_UNDEF ||
                               reinterpret_cast<ElfW(Addr)>(address) != caller.dlpi_addr + own.st_value);
  return stub ? std::string() : std::string(info.dli_fname);
}

int look_at(dl_phdr_info* info, std::size_t, void* data) {
  Search& search = *static_cast<Search*>(data);
  const char* const slash = std::strrchr(info->dlpi_name, '/');
  if (std::string(slash ? slash + 1 : info->dlpi_name).compare(0, search.caller.size(), search.caller) != 0) return 0;
  for (int k = 0; k < info->dlpi_phnum; ++k) {
    if (info->dlpi_phdr[k].p_type != PT_DYNAMIC) continue;
    const Dynamic dynamic =
        read_dynamic(reinterpret_cast<const ElfW(Dyn)*>(info->dlpi_addr + info->dlpi_phdr[k].p_vaddr), info->dlpi_addr);
    if (!dynamic.symbols || !dynamic.names || !dynamic.with_addends) return 1;
    for (int table = 0; table < 2; ++table) {
      for (std::size_t r = 0; r < dynamic.sizes[table] / sizeof(ElfW(Rela)); ++r) {
        const ElfW(Rela)& relocation = dynamic.relocations[table][r];
        const std::size_t index = symbol_of(relocation);
        if (index == 0) continue;
        const ElfW(Sym)& symbol = dynamic.symbols[index];
        if (std::strcmp(dynamic.names + symbol.st_name, search.symbol) != 0) continue;
        void* address = nullptr;
        std::memcpy(&address, reinterpret_cast<const void*>(info->dlpi_addr + relocation.r_offset), sizeof(address));
        search.library = library_of(address, *info, symbol);
        return 1;
      }
    }
  }
  return 1;
}

}  // namespace

std::string bound_library(const std::string& caller, const char* symbol) {
  Search search{caller, symbol, {}};
  dl_iterate_phdr(look_at, &search);
  return search.library;
}

}  // namespace clebsch
