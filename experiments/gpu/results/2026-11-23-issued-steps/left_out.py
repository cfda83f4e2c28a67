import json,sys
src,dst=sys.argv[1:3]
d=json.load(open(src+'/calibrate-llada-8b.json'))
long=45e6; F={}
LEFT=[('reuse',1,1024),('select',1,384)]
def bad(s): return s['fused_head'] and len(s['sides'])==1 and (s['sides'][0]['kind'],s['sides'][0]['requests'],s['sides'][0]['canvas_tokens']) in LEFT
for fused in (True,False):
    before=set(F)
    for s in d['steps']:
        if s['held_out'] or s['device_ns']>long or s['fused_head']!=fused or bad(s): continue
        for o in s['operators']:
            k=(o['operator'],o['size'],o['rows'])
            if o['priced_ns']>0 and o['measured_ns']>0 and k not in before:
                a=F.setdefault(k,[0,0]); a[0]+=o['measured_ns']; a[1]+=o['priced_ns']
L=open(src+'/fresh-llada-8b.csv').read().split('\n')
out=[]; miss=0
for l in L:
    c=l.split(',')
    if c[0]=='load' and len(c)==5:
        k=(c[1],c[2],int(c[3]))
        if k not in F: miss+=1; print('dropped',l); continue
        n=min(max(F[k][0]/F[k][1],0.05),20)
        if abs(n/float(c[4])-1)>1e-3: print('changed',l,'->%.5g'%n)
        l='load,%s,%s,%d,%.5g'%(*k,n)
    out.append(l)
    if l.startswith('# power:'):
        out.append('# left_out: operators of the steps of 1 reuse of 1024 tokens and of 1 select of 384, fused, while which the host fell behind: load rows are of the others (2026-11-23-issued-steps)')
t='\n'.join(out); n=int([l for l in L if l.startswith('# rows:')][0].split(':')[1])
t=t.replace('# rows: %d'%n,'# rows: %d'%(n-miss))
open(dst+'/fresh-llada-8b.csv','w').write(t)
