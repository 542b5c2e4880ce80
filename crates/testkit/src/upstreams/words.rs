//! The words of what is made up. Categories, sectors and cities are spelled as the regulator spells them; whatever
//! names a company or an issuer is invented, and no natural person is named at all.

/// What stands before a place in a company's name, what after it, and its sector.
pub const TRADES: [(&str, &str, &str); 20] = [
    ("CERÂMICA", "S.A.", "Construção Civil, Mat. Constr. e Decoração"),
    ("CONSTRUTORA", "S.A.", "Construção Civil, Mat. Constr. e Decoração"),
    ("BANCO", "S.A.", "Bancos"),
    ("", "SECURITIZADORA S.A.", "Securitização de Recebíveis"),
    ("SEGURADORA", "S.A.", "Seguradoras e Corretoras"),
    ("METALÚRGICA", "S.A.", "Metalurgia e Siderurgia"),
    ("INDÚSTRIA DE MÁQUINAS", "S.A.", "Máquinas, Equipamentos, Veículos e Peças"),
    ("COMPANHIA DE FIAÇÃO E TECIDOS", "", "Têxtil e Vestuário"),
    ("COMPANHIA ENERGÉTICA", "", "Energia Elétrica"),
    ("TRANSMISSORA", "DE ENERGIA ELÉTRICA S.A.", "Energia Elétrica"),
    ("", "ENERGIA E PARTICIPAÇÕES S.A.", "Emp. Adm. Part. - Energia Elétrica"),
    ("LOJAS", "S.A.", "Comércio (Atacado e Varejo)"),
    ("LATICÍNIOS", "S.A.", "Alimentos"),
    ("USINA", "S.A. - AÇÚCAR E ÁLCOOL", "Agricultura (Açúcar, Álcool e Cana)"),
    ("COMPANHIA DE SANEAMENTO", "", "Saneamento, Serv. Água e Gás"),
    ("", "LOGÍSTICA S.A.", "Serviços Transporte e Logística"),
    ("MINERAÇÃO", "S.A.", "Extração Mineral"),
    ("HOSPITAIS", "S.A.", "Serviços Médicos"),
    ("", "EDUCAÇÃO S.A.", "Educação"),
    ("", "PARTICIPAÇÕES S.A.", ""),
];

/// Two halves that sound like a place and name no company.
pub const ROOTS: [&str; 26] = [
    "PIRA", "JAGUA", "TAMBO", "URU", "MOCO", "SUCU", "IBI", "CURU", "JURE", "TAPI", "ABAE", "INHA", "PACU", "SAPU",
    "TUCU", "BATU", "COTI", "JAPE", "OITI", "QUIXA", "SARI", "TIMBU", "VACU", "XERE", "ZABE", "MURI",
];
pub const ENDINGS: [&str; 20] = [
    "JUÍ", "RIPÉ", "BOCÓ", "RINGÃ", "CATUÁ", "RAÇUÍ", "MIRÃ", "PEBAÍ", "NUÇU", "NDUVÃ", "TIBOÉ", "MBEÚ", "QUAREÍ",
    "RITEÚ", "COARÉ", "NHANGÁ", "POTIÁ", "XIMBÉ", "MERUÁ", "ZIMBÓ",
];
pub const QUALIFIERS: [&str; 6] = ["", "DO NORTE", "DO SUL", "DO LESTE", "DO OESTE", "DE CIMA"];

pub const CITIES: [(&str, &str); 8] = [
    ("SÃO PAULO", "SP"),
    ("SÃO PAULO", "SP"),
    ("RIO DE JANEIRO", "RJ"),
    ("BELO HORIZONTE", "MG"),
    ("PORTO ALEGRE", "RS"),
    ("CURITIBA", "PR"),
    ("BRASÍLIA", "DF"),
    ("FLORIANÓPOLIS", "SC"),
];

/// They file without a number of their own, and the registry does not have them.
pub const FOREIGN_ISSUERS: [(u32, &str); 6] = [
    (80_012, "NORTHWICKE MERIDIAN HOLDINGS PLC"),
    (80_047, "OAKENVALE RESOURCES LTD."),
    (80_063, "TAMARISKE MINING CORPORATION"),
    (80_101, "ESTRELLA DEL OMBÚ S.A."),
    (80_118, "SILVERFENNE LOGISTICS N.V."),
    (80_187, "QUARTZMERE TECHNOLOGIES INC."),
];

/// It has a number, but no registry has it.
pub const UNREGISTERED_ISSUER: (u32, &str, &str) = (80_152, "VALDORAGO PARTICIPATIONS LTD.", "999990020001");

/// Which day a filing refers to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reference {
    /// That of its delivery, or a few days before.
    Event,
    /// A meeting of some weeks later.
    Meeting,
    /// The end of the quarter before.
    Quarter,
    /// The end of the year.
    Year,
}

pub struct Category {
    pub name: &'static str,
    pub weight: usize,
    pub reference: Reference,
    /// `Tipo` and `Especie`.
    pub forms: &'static [(&'static str, &'static str)],
    /// With gaps that a generator fills; none where the regulator's rows of this category have no subject.
    pub subjects: &'static [&'static str],
}

/// Its rows have no protocol, whatever the year.
pub const PROCEEDS: &str = "Relatório Proventos";

const PLAIN: &[(&str, &str)] = &[("", "")];
const OTHER: &[(&str, &str)] = &[("Outros", "")];

pub const CATEGORIES: [Category; 26] = [
    Category {
        name: "Assembleia",
        weight: 230,
        reference: Reference::Meeting,
        forms: &[
            ("AGO", "Ata"),
            ("AGO", "Edital de Convocação"),
            ("AGO/E", "Proposta da Administração"),
            ("AGO/E", "Boletim de voto a distância"),
            ("AGO/E", "Manual para participação"),
            ("AGE", "Ata"),
            ("AGE", "Edital de Convocação"),
            ("AGE", "Mapa Final de Votação Detalhado"),
            ("AGDEB", "Ata"),
            ("AGESP", "Ata"),
        ],
        subjects: &[
            "Eleição dos membros do Conselho de Administração e remuneração para {ano}",
            "Tomada das contas dos administradores e destinação do lucro do exercício",
            "Aumento do capital social em {valor} e reforma do Estatuto Social",
            "Alteração das condições da {emissao} emissão de debêntures",
        ],
    },
    Category {
        name: "Reunião da Administração",
        weight: 180,
        reference: Reference::Event,
        forms: &[("Conselho de Administração", "Ata"), ("Conselho Fiscal", "Ata"), ("Diretoria", "Ata")],
        subjects: &[
            "Aprovação da {emissao} emissão de debêntures simples no valor de {valor}",
            "Aprovação das informações do {trimestre} e distribuição de dividendos",
            "Eleição da Diretoria para o próximo mandato",
            "Prestação de garantias a sociedade controlada",
        ],
    },
    Category {
        name: "Comunicado ao Mercado",
        weight: 160,
        reference: Reference::Event,
        forms: &[
            ("Outros Comunicados Não Considerados Fatos Relevantes", ""),
            ("Apresentações a analistas/agentes do mercado", ""),
            ("Esclarecimentos sobre questionamentos da CVM/B3", ""),
            ("Aquisição/Alienação de Participação Acionária (art. 12 da Instr. CVM nº 358)", ""),
        ],
        subjects: &[
            "Alienação de participação acionária relevante por fundos de investimento",
            "Apresentação dos resultados do {trimestre} a analistas",
            "Esclarecimentos sobre notícia publicada em {data}",
            "Classificação de risco da {emissao} emissão de debêntures",
        ],
    },
    Category {
        name: "Dados Econômico-Financeiros",
        weight: 120,
        reference: Reference::Quarter,
        forms: &[
            ("Press-release", ""),
            ("Demonstrações Financeiras Anuais Completas", ""),
            ("Demonstrações Financeiras Intermediárias", ""),
            ("Relatório de Agente Fiduciário", ""),
        ],
        subjects: &[
            "Resultados do {trimestre} com comentários sobre receitas e margens",
            "Demonstrações financeiras com relatório dos auditores independentes",
        ],
    },
    Category {
        name: "Fato Relevante",
        weight: 55,
        reference: Reference::Event,
        forms: PLAIN,
        subjects: &[
            "Aquisição da totalidade das ações de sociedade do mesmo setor por {valor}",
            "Memorando de entendimentos não vinculante para incorporação de ações",
            "Aprovação da {emissao} emissão de debêntures no montante de {valor}",
            "Pagamento de juros sobre capital próprio no montante de {valor}",
            "Projeções de investimentos para {ano}",
        ],
    },
    Category {
        name: "Aviso aos Acionistas",
        weight: 55,
        reference: Reference::Event,
        forms: &[("Outros avisos", ""), ("", "")],
        subjects: &[
            "Pagamento de dividendos aos acionistas inscritos em {data}",
            "Prazo para o exercício do direito de preferência na subscrição de ações",
        ],
    },
    Category {
        name: "Valores Mobiliários negociados e detidos",
        weight: 60,
        reference: Reference::Event,
        forms: &[("Posição Consolidada", ""), ("Posição Individual - Cia, Controladas e Coligadas", "")],
        subjects: &[],
    },
    Category {
        name: "Calendário de Eventos Corporativos",
        weight: 25,
        reference: Reference::Year,
        forms: PLAIN,
        subjects: &[],
    },
    Category { name: PROCEEDS, weight: 20, reference: Reference::Event, forms: PLAIN, subjects: &[] },
    Category { name: "Estatuto Social", weight: 15, reference: Reference::Event, forms: OTHER, subjects: &[] },
    Category {
        name: "Aviso aos Debenturistas",
        weight: 15,
        reference: Reference::Event,
        forms: OTHER,
        subjects: &["Resgate antecipado facultativo das debêntures da {emissao} emissão"],
    },
    Category {
        name: "Escrituras e aditamentos de debêntures",
        weight: 14,
        reference: Reference::Event,
        forms: &[("Escritura", ""), ("Aditamento", "")],
        subjects: &["Instrumento particular de escritura da {emissao} emissão de debêntures"],
    },
    Category {
        name: "Comunicação sobre Transação entre Partes Relacionadas",
        weight: 10,
        reference: Reference::Event,
        forms: OTHER,
        subjects: &["Contrato de mútuo com sociedade controlada no valor de {valor}"],
    },
    Category { name: "Acordo de Acionistas", weight: 7, reference: Reference::Event, forms: OTHER, subjects: &[] },
    Category {
        name: "Relatório de Sustentabilidade",
        weight: 5,
        reference: Reference::Year,
        forms: OTHER,
        subjects: &[],
    },
    Category {
        name: "Regimento Interno do Conselho de Administração",
        weight: 5,
        reference: Reference::Event,
        forms: OTHER,
        subjects: &[],
    },
    Category { name: "Código de Conduta", weight: 5, reference: Reference::Event, forms: OTHER, subjects: &[] },
    Category {
        name: "Plano de Remuneração Baseado em Ações",
        weight: 4,
        reference: Reference::Event,
        forms: OTHER,
        subjects: &["Plano de opções de compra de ações"],
    },
    Category {
        name: "Informações de Companhias em Recuperação Judicial ou Extrajudicial",
        weight: 5,
        reference: Reference::Event,
        forms: &[("Relatório do administrador judicial", ""), ("Plano de recuperação", "")],
        subjects: &["Relatório mensal de atividades apresentado em {data}"],
    },
    // Its name contains that of another category.
    Category {
        name: "Política de Divulgação de Ato ou Fato Relevante",
        weight: 4,
        reference: Reference::Event,
        forms: OTHER,
        subjects: &[],
    },
    Category { name: "Política de Dividendos", weight: 3, reference: Reference::Event, forms: OTHER, subjects: &[] },
    Category {
        name: "Política de Negociação das Ações da Companhia",
        weight: 3,
        reference: Reference::Event,
        forms: OTHER,
        subjects: &[],
    },
    Category {
        name: "Política de Sustentabilidade",
        weight: 2,
        reference: Reference::Event,
        forms: OTHER,
        subjects: &[],
    },
    Category {
        name: "Carta Anual de Governança Corporativa",
        weight: 3,
        reference: Reference::Year,
        forms: OTHER,
        subjects: &[],
    },
    Category {
        name: "Comunicação sobre demandas societárias",
        weight: 3,
        reference: Reference::Event,
        forms: OTHER,
        subjects: &["Ação proposta por acionistas minoritários e pedidos formulados"],
    },
    Category {
        name: "OPA - Edital de Oferta Pública de Ações",
        weight: 2,
        reference: Reference::Event,
        forms: OTHER,
        subjects: &["Edital de oferta pública para cancelamento de registro"],
    },
];

/// What a meeting decides on, one after the other.
pub const AGENDA: [&str; 8] = [
    "Tomar as contas dos administradores, examinar e votar as demonstrações financeiras",
    "Deliberar sobre a destinação do lucro líquido e a distribuição de dividendos",
    "Fixar o número de membros do Conselho de Administração e elegê-los",
    "Fixar a remuneração global dos administradores",
    "Instalar o Conselho Fiscal e eleger os seus membros",
    "Alterar o artigo 5º do Estatuto Social e consolidá-lo",
    "Ratificar a contratação da empresa avaliadora e aprovar o laudo",
    "Autorizar os administradores a praticar os atos necessários",
];
