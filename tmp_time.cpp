#include <chrono>
#include <cstdio>
#include <random>
#include "multilinear/sampling/khatri_rao_sampler.h"
using namespace clebsch::sampling;
int main(int c,char**v){ int R=atoi(v[1]); long I=1l<<atoi(v[2]); int N=3; long J=50000;
 std::vector<std::vector<double>> u(N); std::vector<Factor> f; std::mt19937_64 g(1); 
 for(int k=0;k<N;++k){u[k].resize(I*R); for(auto&x:u[k]){unsigned long a=g(); x=((a&0xffff)+((a>>16)&0xffff)+((a>>32)&0xffff)+(a>>48))/65536.0-2;} f.push_back({I,R,u[k].data()});}
 auto now=[]{return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();};
 std::vector<long> idx(J*N); std::vector<double> rows(J*R),w(J);
 for(int rep=0;rep<3;++rep){ double a=now(); KhatriRaoSampler s(f); double b=now(); s.draw(J,-1,rep,idx.data(),rows.data(),w.data()); double e=now(); printf("R %d I %ld build %.3f draw %.3f\n",R,I,b-a,e-b);} }
